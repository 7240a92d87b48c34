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

// writer writes an archive. Everything that it writes is scrubbed of secrets first.
type writer struct {
	now      time.Time
	zip      *gzip.Writer
	tar      *tar.Writer
	secrets  []string
	files    int
	problems []string
	err      error
}

func newWriter(w io.Writer, now time.Time) *writer {
	zip := gzip.NewWriter(w)
	return &writer{now: now, zip: zip, tar: tar.NewWriter(zip)}
}

func (w *writer) close() error {
	w.text("README.txt", w.readme())
	return errors.Join(w.err, w.tar.Close(), w.zip.Close())
}

// hide removes a text from everything that is written from now on.
func (w *writer) hide(secret string) {
	const shortest = 8 // a shorter text is no secret, and removing it would remove words
	if len(secret) >= shortest {
		w.secrets = append(w.secrets, secret)
	}
}

// text adds a file.
func (w *writer) text(name, content string) {
	if w.err != nil {
		return
	}
	content = w.scrub(content)
	header := &tar.Header{Name: "seamark/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: w.now}
	if w.err = w.tar.WriteHeader(header); w.err == nil {
		_, w.err = io.WriteString(w.tar, content)
		w.files++
	}
}

// yaml adds an object or a list as a file.
func (w *writer) yaml(name string, value any) {
	text, err := yaml.Marshal(value)
	if err != nil {
		w.addProblem(name, err)
		return
	}
	w.text(name, string(text))
}

// addProblem records what could not be read.
func (w *writer) addProblem(what string, err error) {
	w.problems = append(w.problems, what+": "+objects.ErrorText(err))
}

const removed = "(removed)"

// secretForms match secrets by their form: JSON web tokens, PEM blocks, also in base64, and bearer
// tokens.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`),
	regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?-----END [A-Z0-9 ]+-----`),
	regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`),
	regexp.MustCompile(`(?i)bearer\s+[A-Za-z0-9._~+/=-]{8,}`),
}

// secretFields matches fields of JSON, YAML and logs whose value is a secret, or may be one. A
// quote at the end is part of the value only if one is at its beginning: it may belong to the text
// around the field, which must stay valid YAML.
var secretFields = regexp.MustCompile(`(?im)((?:"|\\"|\b)` +
	`(?:token|password|passwd|secret|clientsecret|client-key-data|client-certificate-data|` +
	`certificate-authority-data|cadata|cabundle|authorization)` +
	`(?:"|\\")?\s*[:=]\s*)("[^"\n]*"|\\"[^"\n]*"|'[^'\n]*'|['"]*[^\s,}'"]+(?:['"]+[^\s,}'"]+)*)`)

// scrub removes secrets: those that are known, and everything that looks like one.
func (w *writer) scrub(text string) string {
	for _, secret := range w.secrets {
		text = strings.ReplaceAll(text, secret, removed)
	}
	return Clean(text)
}

// Clean removes from a text everything that looks like a secret.
func Clean(text string) string {
	for _, form := range secretForms {
		text = form.ReplaceAllString(text, removed)
	}
	return secretFields.ReplaceAllString(text, "${1}"+removed)
}

func (w *writer) readme() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Written by seamark gather at %s.\n\n", w.now.UTC().Format(time.RFC3339))
	b.WriteString("The only Secret that was read is the member's credential, to ask the broker. " +
		"Tokens, certificates and keys were removed.\n" +
		"Names and addresses of services, clusters and nodes are included.\n")
	if len(w.problems) > 0 {
		b.WriteString("\nCould not be read:\n")
		for _, p := range w.problems {
			b.WriteString("- " + p + "\n")
		}
	}
	return b.String()
}

// Archive is what was written.
type Archive struct {
	File  string
	Files int
	Bytes int64
	// Problems are what could not be read, and why.
	Problems []string
}

// writeArchive writes an archive. It removes a file that cannot be completed: half an archive would
// mislead its reader.
func writeArchive(path string, now time.Time, fill func(*writer)) (Archive, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Archive{}, fmt.Errorf("write the archive: %w (choose another name with -o)", err)
	}
	w := newWriter(file, now)
	fill(w)
	err = w.close()
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
	return Archive{File: path, Files: w.files, Bytes: info.Size(), Problems: w.problems}, nil
}

// WriteArchive writes all that can be read of the clusters and their broker into a new file. What
// cannot be read is listed in the result; it fails only if the file cannot be written.
func WriteArchive(ctx context.Context, path string, now time.Time, clusters []*survey.Cluster, broker *survey.Broker, since time.Duration,
) (Archive, error) {
	return writeArchive(path, now, func(w *writer) { w.all(ctx, clusters, broker, since) })
}
