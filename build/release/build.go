package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
)

// build writes all files of the release into dir.
func (r release) build(ctx context.Context, dir string) error {
	binaries, err := r.writeArchives(ctx, dir)
	if err != nil {
		return err
	}
	daemons, err := r.writeImage(ctx, dir)
	if err != nil {
		return err
	}
	if err := writeChart(dir, r.time); err != nil {
		return err
	}
	if err := r.writeManifests(dir); err != nil {
		return err
	}
	sbom, err := r.sbom(append(binaries, daemons...))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.file(".cdx.json")), sbom, 0o644); err != nil {
		return err
	}
	return r.writeSums(dir)
}

// writeSums writes the krew manifest, which has checksums of archives, and then the checksums of
// all files.
func (r release) writeSums(dir string) error {
	sums, err := sumsOf(dir)
	if err != nil {
		return err
	}
	krew, err := r.krewManifest(sums)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, pluginName+".yaml"), krew, 0o644); err != nil {
		return err
	}
	if sums, err = sumsOf(dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), formatSums(sums), 0o644)
}

// writeArchives builds the command line for each platform.
func (r release) writeArchives(ctx context.Context, dir string) (binaries []binary, err error) {
	temporary, err := os.MkdirTemp("", "seamark-release-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	for _, p := range r.platforms {
		started := time.Now()
		if err := image.Compile(ctx, r.root, r.version, p, temporary, "cmd/seamark"); err != nil {
			return nil, fmt.Errorf("build the command line for %s: %w", p, err)
		}
		content, err := os.ReadFile(filepath.Join(temporary, program(p)))
		if err != nil {
			return nil, err
		}
		b, err := readBinary("seamark", p, content)
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, b)
		files := []entry{{name: program(p), mode: 0o755, content: content}, {name: "LICENSE", mode: 0o644, content: license}}
		if err := r.writeArchive(filepath.Join(dir, r.archive(p)), p, files); err != nil {
			return nil, err
		}
		progress("command line for %s: built in %s", p, time.Since(started).Round(100*time.Millisecond))
	}
	return binaries, nil
}

func (r release) writeArchive(path string, p image.Platform, files []entry) error {
	archive, err := os.Create(path)
	if err != nil {
		return err
	}
	write := writeTarGz
	if p.OS == "windows" {
		write = writeZip
	}
	if err := errors.Join(write(archive, files, r.time), archive.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// writeImage builds the image of the daemons for the platforms of Linux, and returns the programs
// in it. Without such a platform there is no image.
func (r release) writeImage(ctx context.Context, dir string) (programs []binary, err error) {
	recipe, err := image.Daemons(r.root)
	if err != nil {
		return nil, err
	}
	var images []v1.Image
	for _, arch := range r.architectures() {
		started := time.Now()
		built, err := image.Builder{Root: r.root, Version: r.version}.Build(ctx, recipe, arch)
		if err != nil {
			return nil, err
		}
		images = append(images, built)
		read, err := programsOf(built, image.Platform{OS: "linux", Arch: arch})
		if err != nil {
			return nil, fmt.Errorf("read the image for %s: %w", arch, err)
		}
		programs = append(programs, read...)
		progress("image for linux/%s: built in %s", arch, time.Since(started).Round(100*time.Millisecond))
	}
	if len(images) == 0 {
		return nil, nil
	}
	return programs, image.WriteLayout(filepath.Join(dir, r.file("_image.tar")), recipe.Repository+":"+r.version, images...)
}

// programsOf returns the programs in an image.
func programsOf(from v1.Image, p image.Platform) (programs []binary, err error) {
	flat := mutate.Extract(from)
	defer func() { err = errors.Join(err, flat.Close()) }()
	for files := tar.NewReader(flat); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return programs, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg || "/"+path.Dir(header.Name) != image.BinDir {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return nil, err
		}
		b, err := readBinary(path.Base(header.Name), p, content)
		if err != nil {
			return nil, err
		}
		programs = append(programs, b)
	}
}
