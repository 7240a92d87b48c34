package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
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
	g.problems = append(g.problems, what+": "+plainError(err))
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
