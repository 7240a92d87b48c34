package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Architectures are the architectures that images are built for.
var Architectures = []string{"amd64", "arm64"}

// Builder builds images from recipes.
type Builder struct {
	// Root is the top of the checkout.
	Root string
	// Version is the version of the programs and the label of the image.
	Version string
	// Cache is a folder for the programs, which are not linked again while they are up to date; empty
	// for no cache.
	Cache string
}

// Content is the content of an image before it is packed. Its Key shows whether the image would be
// the same as another.
type Content struct {
	recipe        Recipe
	arch, version string
	files         []file
}

// Build compiles the programs of a recipe for an architecture and packs them. It fails as Compile
// does.
func (b Builder) Build(ctx context.Context, r Recipe, arch string) (v1.Image, error) {
	content, err := b.Compile(ctx, r, arch)
	if err != nil {
		return nil, err
	}
	return content.Image()
}

// Compile compiles the programs of a recipe for an architecture. On disk it leaves only Go's build
// cache and, if there is one, the builder's. It fails when the architecture is not one of
// Architectures, when the Go tool is missing, when a program does not compile (the error has the
// compiler's output), and when ctx ends.
func (b Builder) Compile(ctx context.Context, r Recipe, arch string) (Content, error) {
	if !slices.Contains(Architectures, arch) {
		return Content{}, fmt.Errorf("there are no images for architecture %q: choose from %s", arch, strings.Join(Architectures, ", "))
	}
	dir, clean, err := b.binaries(arch)
	if err != nil {
		return Content{}, err
	}
	content := Content{recipe: r, arch: arch, version: b.Version, files: baseFiles()}
	err = Compile(ctx, b.Root, b.Version, Platform{OS: "linux", Arch: arch}, dir, r.Programs...)
	for _, program := range r.Programs {
		if err != nil {
			break
		}
		var text []byte
		text, err = os.ReadFile(filepath.Join(dir, path.Base(program)))
		content.files = append(content.files, file{name: path.Join(BinDir, path.Base(program)), mode: 0o755, content: text})
	}
	if err := errors.Join(err, clean()); err != nil {
		return Content{}, fmt.Errorf("build image %s for %s: %w", r.Repository, arch, err)
	}
	return content, nil
}

// Package returns the content of an image with programs that exist already, built for this machine:
// each file is in BinDir under its own name. The programs of the recipe are not used.
func Package(r Recipe, version string, programs ...string) (Content, error) {
	content := Content{recipe: r, arch: HostArchitecture(), version: version, files: baseFiles()}
	for _, program := range programs {
		text, err := os.ReadFile(program)
		if err != nil {
			return Content{}, fmt.Errorf("package image %s: %w", r.Repository, err)
		}
		content.files = append(content.files, file{name: path.Join(BinDir, filepath.Base(program)), mode: 0o755, content: text})
	}
	return content, nil
}

// binaries returns the folder that programs are built into: the builder's cache, locked for one
// build at a time, or a temporary one. clean unlocks or removes it.
func (b Builder) binaries(arch string) (dir string, clean func() error, err error) {
	if b.Cache == "" {
		dir, err = os.MkdirTemp("", "seamark-image-")
		return dir, func() error { return os.RemoveAll(dir) }, err
	}
	dir = filepath.Join(b.Cache, arch)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	lock, err := os.Create(filepath.Join(b.Cache, arch+".lock"))
	if err != nil {
		return "", nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", nil, errors.Join(err, lock.Close())
	}
	return dir, lock.Close, nil
}

// Key returns a hash that is equal for contents whose images are equal. It is cheaper than packing
// them.
func (c Content) Key() string {
	sum := sha256.New()
	field := func(text []byte) {
		_, _ = fmt.Fprintf(sum, "%d:", len(text)) // a hash never fails to write
		_, _ = sum.Write(text)
	}
	field(fmt.Appendf(nil, "%q %q %q", c.recipe, c.arch, c.version))
	for _, f := range c.files {
		field([]byte(f.name))
		field(f.content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// Image packs the content.
func (c Content) Image() (v1.Image, error) {
	layer, err := newLayer(c.files)
	if err != nil {
		return nil, fmt.Errorf("pack image %s: %w", c.recipe.Repository, err)
	}
	return assemble(c.recipe, c.arch, c.version, layer)
}

// file is an entry of a layer; a name that ends in a slash is a folder.
type file struct {
	name    string
	mode    int64
	content []byte
}

// baseFiles returns what programs expect of any system: an account for their user and a folder for
// temporary files.
func baseFiles() []file {
	account := fmt.Sprintf("nonroot:x:%d:%d::/:/none\n", UserID, UserID)
	return []file{
		{name: "/etc/", mode: 0o755},
		{name: "/etc/passwd", mode: 0o644, content: []byte("root:x:0:0::/:/none\n" + account)},
		{name: "/etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", UserID)},
		{name: "/tmp/", mode: 0o1777},
		{name: "/usr/", mode: 0o755}, {name: "/usr/local/", mode: 0o755}, {name: BinDir + "/", mode: 0o755},
	}
}

// newLayer packs files without times and owners, so that equal files make an equal layer.
func newLayer(files []file) (v1.Layer, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{
			Name: strings.TrimPrefix(f.name, "/"), Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, Format: tar.FormatPAX,
		}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		header.ModTime = time.Unix(0, 0)
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	// The fastest compression: images are built far more often than stored, and binaries still shrink
	// well.
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
}

func assemble(r Recipe, arch, version string, layer v1.Layer) (v1.Image, error) {
	image := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	image, err := mutate.AppendLayers(image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", UserID, UserID),
		Env:        []string{"PATH=" + BinDir},
		Entrypoint: r.Entrypoint,
		Cmd:        r.Command,
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       path.Base(r.Repository),
			"org.opencontainers.image.description": r.Description,
			"org.opencontainers.image.version":     version,
			"org.opencontainers.image.source":      "https://github.com/seamark-dev/seamark",
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// HostArchitecture returns the architecture of this machine, as images name it.
func HostArchitecture() string { return runtime.GOARCH }
