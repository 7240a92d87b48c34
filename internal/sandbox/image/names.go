package image

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Name is the name of an image in an archive.
type Name struct {
	Stored string // the name that containerd takes from the archive
	Full   string // the name that Kubernetes uses, with registry and tag
}

const (
	// containerdName is the annotation with the name under which containerd imports an image.
	containerdName = "io.containerd.image.name"
	// refName is the annotation of the OCI specification: some tools write a whole name to it, others
	// only a tag.
	refName = "org.opencontainers.image.ref.name"
	// maxMetadata limits what is read; the metadata of an image has some hundred bytes.
	maxMetadata = 8 << 20
)

// Names returns the names of the images in a docker-archive or OCI archive, which may be compressed
// with gzip. It fails when the archive has no name: no pod could use its image.
func Names(file string) ([]Name, error) {
	metadata, err := readMetadata(file)
	if err != nil {
		return nil, err
	}
	stored, err := storedNames(metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	names := make([]Name, len(stored))
	for i, s := range stored {
		full, err := fullName(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		names[i] = Name{Stored: s, Full: full}
	}
	return names, nil
}

const (
	dockerMetadata = "manifest.json"
	ociMetadata    = "index.json"
)

func readMetadata(file string) (map[string][]byte, error) {
	archive, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = archive.Close() }() // it was only read
	var content io.Reader = bufio.NewReader(archive)
	if magic, err := content.(*bufio.Reader).Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		if content, err = gzip.NewReader(content); err != nil {
			return nil, notAnArchive(file, err)
		}
	}
	metadata := map[string][]byte{}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return metadata, nil
		}
		if err != nil {
			return nil, notAnArchive(file, err)
		}
		if path := strings.TrimPrefix(header.Name, "./"); path == dockerMetadata || path == ociMetadata {
			if metadata[path], err = io.ReadAll(io.LimitReader(reader, maxMetadata)); err != nil {
				return nil, notAnArchive(file, err)
			}
		}
	}
}

func notAnArchive(file string, err error) error {
	return fmt.Errorf("%s is not a tar of images as written by docker save or skopeo: %w", file, err)
}

// storedNames returns the names that containerd takes from an archive. It reads Docker's metadata
// only when there is no OCI metadata.
func storedNames(metadata map[string][]byte) ([]string, error) {
	var names []string
	switch index, manifest := metadata[ociMetadata], metadata[dockerMetadata]; {
	case index != nil:
		var parsed v1.IndexManifest
		if err := json.Unmarshal(index, &parsed); err != nil {
			return nil, fmt.Errorf("read %s: %w", ociMetadata, err)
		}
		for _, d := range parsed.Manifests {
			if n := d.Annotations[containerdName]; n != "" {
				names = append(names, n)
			} else if n := d.Annotations[refName]; strings.ContainsAny(n, "/:@") { // otherwise it is only a tag
				names = append(names, n)
			}
		}
	case manifest != nil:
		var parsed []struct{ RepoTags []string }
		if err := json.Unmarshal(manifest, &parsed); err != nil {
			return nil, fmt.Errorf("read %s: %w", dockerMetadata, err)
		}
		for _, image := range parsed {
			for _, tag := range image.RepoTags { // containerd stores these with registry and tag
				full, err := fullName(tag)
				if err != nil {
					return nil, err
				}
				names = append(names, full)
			}
		}
	default:
		return nil, fmt.Errorf("it has neither %s nor %s, so it holds no image", ociMetadata, dockerMetadata)
	}
	if len(names) == 0 {
		return nil, errors.New("its images have no names, so pods cannot use them: write the file again with a name " +
			"(docker save NAME:TAG; skopeo copy … docker-archive:FILE:NAME:TAG)")
	}
	return names, nil
}

// fullName adds Docker's registry to a short name, as container runtimes do.
func fullName(short string) (string, error) {
	tag, err := name.NewTag(short)
	if err != nil {
		return "", fmt.Errorf("%q is not the name of an image with a tag: %w", short, err)
	}
	return fullTag(tag), nil
}

func fullTag(tag name.Tag) string {
	registry := tag.RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return registry + "/" + tag.RepositoryStr() + ":" + tag.TagStr()
}
