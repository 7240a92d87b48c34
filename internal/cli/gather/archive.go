// Package gather packs what helps to diagnose a clusterset into an archive without secrets.
package gather

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/seamark-dev/seamark/internal/cli/survey"
	"github.com/seamark-dev/seamark/internal/objects"
)

// gatherer writes an archive. Whatever goes into it is scrubbed first; there is no other way in.
type gatherer struct {
	now      time.Time
	zip      *gzip.Writer
	tar      *tar.Writer
	secrets  []string
	files    int
	problems []string
	err      error
}

func newGatherer(w io.Writer, now time.Time) *gatherer {
	zip := gzip.NewWriter(w)
	return &gatherer{now: now, zip: zip, tar: tar.NewWriter(zip)}
}

func (g *gatherer) close() error {
	g.text("README.txt", g.readme())
	return errors.Join(g.err, g.tar.Close(), g.zip.Close())
}

// hide keeps a text out of the archive wherever it may appear.
func (g *gatherer) hide(secret string) {
	const shortest = 8 // a shorter one is no secret, and would black out words
	if len(secret) >= shortest {
		g.secrets = append(g.secrets, secret)
	}
}

// text adds a file.
func (g *gatherer) text(name, content string) {
	if g.err != nil {
		return
	}
	content = g.scrub(content)
	header := &tar.Header{Name: "seamark/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: g.now}
	if g.err = g.tar.WriteHeader(header); g.err == nil {
		_, g.err = io.WriteString(g.tar, content)
		g.files++
	}
}

// yaml adds an object or a list as a file.
func (g *gatherer) yaml(name string, value any) {
	text, err := yaml.Marshal(value)
	if err != nil {
		g.miss(name, err)
		return
	}
	g.text(name, string(text))
}

// miss takes note of something that could not be had.
func (g *gatherer) miss(what string, err error) {
	g.problems = append(g.problems, what+": "+objects.ErrorText(err))
}

const blackedOut = "(removed)"

// What is a secret by its form, whoever wrote it: JSON web tokens, PEM blocks, bearer tokens, and values of fields that hold such in
// JSON, YAML and logs, base64 of a certificate among them.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?-----END [A-Z0-9 ]+-----`),
	regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`),
	regexp.MustCompile(`(?i)bearer\s+[A-Za-z0-9._~+/=-]{8,}`),
}

var secretFields = regexp.MustCompile(
	`(?im)((?:"|\\"|\b)(?:token|password|passwd|secret|clientsecret|client-key-data|client-certificate-data|certificate-authority-data|cadata|cabundle|authorization)(?:"|\\")?\s*[:=]\s*)("[^"\n]*"|[^\s,}]+)`)

// scrub blacks out secrets: those that are known, and what looks like one.
func (g *gatherer) scrub(text string) string {
	for _, secret := range g.secrets {
		text = strings.ReplaceAll(text, secret, blackedOut)
	}
	for _, form := range secretForms {
		text = form.ReplaceAllString(text, blackedOut)
	}
	return secretFields.ReplaceAllString(text, "${1}"+blackedOut)
}

func (g *gatherer) readme() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Gathered by seamark gather at %s.\n\n", g.now.UTC().Format(time.RFC3339))
	b.WriteString("Secrets were not read, but for the member's credential that was used to ask the broker. Tokens, certificates and keys were blacked out.\n" +
		"Names and addresses of services, clusters and nodes are in here.\n")
	if len(g.problems) > 0 {
		b.WriteString("\nCould not be read:\n")
		for _, p := range g.problems {
			b.WriteString("- " + p + "\n")
		}
	}
	return b.String()
}

// Archive is what is told of a gathering.
type Archive struct {
	File  string
	Files int
	Bytes int64
	// Problems are what could not be read; the rest is there.
	Problems []string
}

// writeArchive writes an archive. A file that cannot be completed is removed: half of one would mislead.
func writeArchive(path string, now time.Time, fill func(*gatherer)) (Archive, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Archive{}, fmt.Errorf("write the archive: %w (choose another name with -o)", err)
	}
	g := newGatherer(file, now)
	fill(g)
	err = g.close()
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(path)
		return Archive{}, fmt.Errorf("write %s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return Archive{}, fmt.Errorf("write %s: %w", path, err)
	}
	return Archive{File: path, Files: g.files, Bytes: info.Size(), Problems: g.problems}, nil
}

// WriteArchive writes all that can be read of the clusters and their broker into a new file. What
// cannot be read is listed in the result; it fails only if the file cannot be written.
func WriteArchive(ctx context.Context, path string, now time.Time, clusters []*survey.Cluster, broker *survey.Broker, since time.Duration) (Archive, error) {
	return writeArchive(path, now, func(g *gatherer) { g.all(ctx, clusters, broker, since) })
}
