package kubeparts

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// identify returns the version of a part and the name of its folder in the cache, which changes
// with every input of the build: version, platform, the module's files and the build flags.
func (p part) identify() (version, key string, err error) {
	gomod, err := os.ReadFile(filepath.Join(p.dir, "go.mod"))
	if err != nil {
		return "", "", err
	}
	version = requiredVersion(gomod, p.versionOf)
	if version == "" {
		return "", "", fmt.Errorf("%s does not require %s", filepath.Join(p.dir, "go.mod"), p.versionOf)
	}
	sum, err := hashInputs(p.dir)
	if err != nil {
		return "", "", err
	}
	return version, fmt.Sprintf("%s-%s-%s", version, platform(), sum), nil
}

// hashInputs returns a short digest of the inputs of a build of the module in dir: go.mod, go.sum,
// its Go files, those of commands in folders of it too, and the build flags. The Go version is not
// among them: an update of Go should not cost every developer a rebuild of minutes.
func hashInputs(dir string) (string, error) {
	files := []string{"go.mod", "go.sum"}
	for _, pattern := range []string{"*.go", "*/*.go"} {
		names, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil {
			return "", err
		}
		slices.Sort(names)
		files = append(files, names...)
	}
	sum := sha256.New()
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if os.IsNotExist(err) && file == "go.sum" {
			continue // a module without dependencies has none
		}
		if err != nil {
			return "", err
		}
		writeField(sum, file)
		writeField(sum, string(text))
	}
	for _, flag := range slices.Concat(buildEnv(), buildFlags(), versionFlags("")) {
		writeField(sum, flag)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// writeField adds a string with its length, so that no two lists of fields give the same bytes.
func writeField(sum hash.Hash, field string) {
	_, _ = fmt.Fprintf(sum, "%d:%s", len(field), field) // a hash never fails to write
}

// requiredVersion returns the version of a required module in a go.mod, or "". It parses by hand,
// because finding a part in the cache must not start a process; the files are formatted by the Go
// tool.
func requiredVersion(gomod []byte, module string) string {
	lines := bufio.NewScanner(bytes.NewReader(gomod))
	for lines.Scan() {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.HasPrefix(fields[1], "v") {
			return fields[1]
		}
	}
	return ""
}

func moduleOf(gomod []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(gomod))
	for lines.Scan() {
		if name, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "module "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}
