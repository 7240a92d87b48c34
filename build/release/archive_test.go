package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
)

var (
	moment  = time.Date(2026, 3, 4, 5, 6, 8, 0, time.UTC)
	entries = []entry{{name: "seamark", mode: 0o755, content: []byte("program")}, {name: "LICENSE", mode: 0o644, content: []byte("text")}}
)

// TestArchivesAreReproducible checks that neither the order of entries nor the time zone of the
// machine changes an archive.
func TestArchivesAreReproducible(t *testing.T) {
	reversed := slices.Clone(entries)
	slices.Reverse(reversed)
	elsewhere := moment.In(time.FixedZone("elsewhere", 5*60*60))
	for name, write := range map[string]func(io.Writer, []entry, time.Time) error{"tar.gz": writeTarGz, "zip": writeZip} {
		var first, second bytes.Buffer
		if err := errors.Join(write(&first, entries, moment), write(&second, reversed, elsewhere)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: the same entries made different archives", name)
		}
	}
}

func TestContentsOfTarGz(t *testing.T) {
	var out bytes.Buffer
	if err := writeTarGz(&out, entries, moment); err != nil {
		t.Fatal(err)
	}
	plain, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %d %s %s", header.Name, header.Mode, header.Uid, header.ModTime.UTC().Format(time.RFC3339), content))
	}
	if want := []string{"LICENSE 644 0 2026-03-04T05:06:08Z text", "seamark 755 0 2026-03-04T05:06:08Z program"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestContentsOfZip(t *testing.T) {
	var out bytes.Buffer
	if err := writeZip(&out, entries, moment); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range archive.File {
		got = append(got, fmt.Sprintf("%s %d %s", file.Name, file.UncompressedSize64, file.Modified.UTC().Format(time.RFC3339)))
	}
	if want := []string{"LICENSE 4 2026-03-04T05:06:08Z", "seamark 7 2026-03-04T05:06:08Z"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
