package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// entry is a file in an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

func sorted(entries []entry) []entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return strings.Compare(a.name, b.name) })
}

// writeTarGz writes entries in the order of their names, without owners and all with one time, so
// that equal entries make equal archives.
func writeTarGz(w io.Writer, entries []entry, modified time.Time) error {
	// gzip.Writer writes neither a name nor a time unless its header has them.
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, e := range sorted(entries) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR, Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: modified,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// writeZip does the same for Windows.
func writeZip(w io.Writer, entries []entry, modified time.Time) error {
	archive := zip.NewWriter(w)
	for _, e := range sorted(entries) {
		// In UTC: the time of a zip is a local time.
		file, err := archive.CreateHeader(&zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: modified.UTC()})
		if err != nil {
			return err
		}
		if _, err := file.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}
