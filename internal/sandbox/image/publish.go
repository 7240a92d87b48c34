package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// WriteTar writes images of one name to a file for `ctr images import`, `docker load` and `seamark
// sandbox load`. One image becomes a docker-archive, several (one per architecture) an OCI layout
// with an index. The file is complete or does not exist.
func WriteTar(file, reference string, images ...v1.Image) error {
	if len(images) == 1 {
		return writeFile(file, reference, func(w io.Writer, tag name.Tag) error { return tarball.Write(tag, images[0], w) })
	}
	return WriteLayout(file, reference, images...)
}

// WriteLayout writes images of one name, one per architecture, as the tar of an OCI layout. Equal
// images make equal files. The file is complete or does not exist.
func WriteLayout(file, reference string, images ...v1.Image) error {
	return writeFile(file, reference, func(w io.Writer, tag name.Tag) error { return writeLayout(w, tag, images) })
}

func writeFile(file, reference string, write func(io.Writer, name.Tag) error) (err error) {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("%q is not the name of an image such as %s:v1.0.0: %w", reference, Repository, err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".partial-")
	if err != nil {
		return fmt.Errorf("writing image %s: %w", reference, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("writing image %s to %s: %w", reference, file, err), os.Remove(temporary.Name()))
		}
	}()
	if err := errors.Join(write(temporary, tag), temporary.Chmod(0o644), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}

// writeLayout packs an OCI layout whose index has one entry: the index of the architectures, under
// the name of the image.
func writeLayout(w io.Writer, tag name.Tag, images []v1.Image) (err error) {
	index, err := multiArchIndex(images)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "seamark-layout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	target, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	annotations := map[string]string{containerdName: fullTag(tag), refName: tag.TagStr()}
	if err := target.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	return pack(w, dir)
}

// pack writes a folder as a tar, in lexical order and without times, so that equal content makes
// equal files.
func pack(w io.Writer, dir string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: filepath.ToSlash(relative), Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = archive.Write(content)
		return err
	})
	return errors.Join(err, archive.Close())
}

// multiArchIndex returns the index of images that differ by architecture.
func multiArchIndex(images []v1.Image) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
	}
	return index, nil
}

// Push pushes images of one name to the registry in the name and returns the digest: that of the
// image, or of the index when there are several architectures. It uses the credentials that `docker
// login` has stored. It fails when the name is invalid, when the registry is unreachable or
// refuses, and when ctx ends.
func Push(ctx context.Context, reference string, images ...v1.Image) (digest string, err error) {
	tag, err := name.NewTag(reference)
	if err != nil {
		return "", fmt.Errorf("%q is not the name of an image such as registry.example.com/seamark:v1.0.0: %w", reference, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	var hash v1.Hash
	if len(images) == 1 {
		hash, err = images[0].Digest()
		if err == nil {
			err = remote.Write(tag, images[0], options...)
		}
	} else {
		var index v1.ImageIndex
		if index, err = multiArchIndex(images); err != nil {
			return "", err
		}
		hash, err = index.Digest()
		if err == nil {
			err = remote.WriteIndex(tag, index, options...)
		}
	}
	if err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	return hash.String(), nil
}
