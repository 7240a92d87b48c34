package state

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seamark-dev/seamark/internal/cli/explain"
)

// Format is the format of the files that this version writes and reads.
const Format = "seamark-ui/v1"

// maxFile bounds what is read of a file: a small one may unpack to any size.
const maxFile = 512 << 20

// File is what the page saves: its state and timeline, without secrets.
type File struct {
	Format string `json:"format"`
	// Version is that of the program that wrote it.
	Version string    `json:"version"`
	SavedAt time.Time `json:"savedAt"`
	History *History  `json:"history"`
	// Reports are those of explain at SavedAt, by service: of all, or of those with trouble if there
	// are many.
	Reports map[string]explain.Report `json:"reports"`
}

// Write writes a file. clean removes secrets from a text: details of findings quote messages of
// API servers and agents.
func (f *File) Write(w io.Writer, clean func(string) string) error {
	f.Format = Format
	plain, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	var value any
	if err := json.Unmarshal(plain, &value); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	zip := gzip.NewWriter(w)
	if err := json.NewEncoder(zip).Encode(cleaned(value, clean)); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return zip.Close()
}

// cleaned returns a JSON value with all of its texts cleaned.
func cleaned(value any, clean func(string) string) any {
	switch typed := value.(type) {
	case string:
		return clean(typed)
	case []any:
		for i := range typed {
			typed[i] = cleaned(typed[i], clean)
		}
	case map[string]any:
		for key := range typed {
			typed[key] = cleaned(typed[key], clean)
		}
	}
	return value
}

// ReadFile reads what Write wrote. The error says what to do with another file.
func ReadFile(r io.Reader) (*File, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, errors.New("it is no file that the page saved, and no archive of seamark gather")
	}
	limited := &io.LimitedReader{R: zip, N: maxFile}
	var f File
	if err := json.NewDecoder(limited).Decode(&f); err != nil {
		if limited.N <= 0 {
			return nil, fmt.Errorf("it holds more than %d MiB, which no file of the page does", maxFile>>20)
		}
		return nil, errors.New("it is damaged, or no file that the page saved: save the page again")
	}
	if f.Format != Format {
		return nil, fmt.Errorf("it has the format %q, and this version of seamark reads %s: open it with seamark %s", f.Format, Format, f.Version)
	}
	if f.History == nil || f.History.Base == nil {
		return nil, errors.New("it holds no state: save the page again")
	}
	f.History.Restore()
	return &f, nil
}
