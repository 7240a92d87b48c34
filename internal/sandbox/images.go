//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/seamark-dev/seamark/internal/daemon/version"
	"github.com/seamark-dev/seamark/internal/sandbox/image"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

// containerdNamespace is the namespace of containerd that kubelet uses.
const containerdNamespace = "k8s.io"

// imageFile is an image in a file.
type imageFile struct {
	recipe image.Recipe
	name   string // with tag
	key    string // changes with the content
	file   string
}

// images are the images that every cluster gets.
type images struct{ daemons, workload imageFile }

// buildImages builds the images from the checkout. Packages in Go's cache are not compiled again.
func (s *Sandbox) buildImages(ctx context.Context) (images, error) {
	var built images
	root, err := kubeparts.Root()
	if err != nil {
		return built, err
	}
	cache, err := kubeparts.CacheDir()
	if err != nil {
		return built, err
	}
	builder := image.Builder{Root: root, Version: version.String(), Cache: filepath.Join(cache, "images")}
	recipe, err := image.Daemons(root)
	if err != nil {
		return built, err
	}
	if built.daemons, err = s.build(ctx, builder, recipe, contentTag); err != nil {
		return built, err
	}
	// Its name is in the configuration of containerd and in users' manifests, so it must not change.
	if built.workload, err = s.build(ctx, builder, image.Workload(), func(string) string { return "sandbox" }); err != nil {
		return built, err
	}
	s.state.Image, s.state.WorkloadImage = built.daemons.name, built.workload.name
	return built, s.save()
}

// contentTag returns a tag that changes with the content, so that workloads are rolled out again
// exactly when their image has changed.
func contentTag(key string) string { return "sandbox-" + key }

func (s *Sandbox) build(ctx context.Context, b image.Builder, r image.Recipe, tag func(key string) string) (imageFile, error) {
	content, err := b.Compile(ctx, r, image.HostArchitecture())
	if err != nil {
		return imageFile{}, err
	}
	key := content.Key()
	l := imageFile{recipe: r, name: r.Repository + ":" + tag(key), key: key}
	l.file = filepath.Join(s.plan.dir, "images", fmt.Sprintf("%s-%s.tar", filepath.Base(r.Repository), key))
	if _, err := os.Stat(l.file); err == nil {
		return l, nil
	}
	made, err := content.Image()
	if err != nil {
		return l, err
	}
	if err := os.MkdirAll(filepath.Dir(l.file), 0o700); err != nil {
		return l, err
	}
	old, err := filepath.Glob(filepath.Join(filepath.Dir(l.file), filepath.Base(r.Repository)+"-*"))
	if err != nil {
		return l, err
	}
	for _, file := range old {
		err = errors.Join(err, os.Remove(file))
	}
	return l, errors.Join(err, image.WriteTar(l.file, l.name, made))
}

// loadImages imports images into the cluster's containerd unless they were imported before.
func (c cluster) loadImages(ctx context.Context, bin binaries, list ...imageFile) error {
	for _, l := range list {
		mark := c.path("run", filepath.Base(l.recipe.Repository)+".loaded")
		if loaded, err := os.ReadFile(mark); err == nil && string(loaded) == l.key {
			continue
		}
		if err := c.importImage(ctx, bin, l.file); err != nil {
			return err
		}
		if err := writeFile(mark, []byte(l.key)); err != nil {
			return err
		}
	}
	return nil
}

// importImage imports the images of a file. It waits for a containerd that is starting.
func (c cluster) importImage(ctx context.Context, bin binaries, file string) error {
	if err := c.awaitContainerd(ctx); err != nil {
		return err
	}
	if err := c.ctr(ctx, bin, "images", "import", file); err != nil {
		return fmt.Errorf("cluster %s: load %s: %w", c.name, file, err)
	}
	return nil
}

// Load imports the images of a docker-archive or an OCI archive into every cluster and returns the
// names by which pods use them. Pods never pull them, unless the tag is `latest`, which Kubernetes
// always pulls. Load fails when a cluster does not run and when the file has no image with a name.
func (s *Sandbox) Load(ctx context.Context, file string, progress io.Writer) ([]string, error) {
	names, err := image.Names(file)
	if err != nil {
		return nil, err
	}
	if s.state.NodeParts == "" {
		return nil, fmt.Errorf("sandbox %s is not complete, or an older version created it: run seamark sandbox up", s.plan.name)
	}
	r, bin := newReport(progress), binaries{node: s.state.NodeParts}
	full := make([]string, len(names))
	for i, n := range names {
		full[i] = n.Full
	}
	for _, c := range s.plan.clusters {
		if err := r.step(c.name+": loaded "+strings.Join(full, ", "), func() error { return c.importNamed(ctx, bin, file, names) }); err != nil {
			return nil, err
		}
	}
	return full, nil
}

// importNamed imports the images of a file, and adds the full names that Kubernetes uses where the
// file has short ones.
func (c cluster) importNamed(ctx context.Context, bin binaries, file string, names []image.Name) error {
	if err := c.importImage(ctx, bin, file); err != nil {
		return err
	}
	for _, n := range names {
		if n.Full == n.Stored {
			continue
		}
		if err := c.ctr(ctx, bin, "images", "tag", "--force", n.Stored, n.Full); err != nil {
			return fmt.Errorf("cluster %s: name image %s: %w", c.name, n.Full, err)
		}
	}
	return nil
}

func (c cluster) ctr(ctx context.Context, bin binaries, args ...string) error {
	args = append([]string{"--address", c.containerdSocket(), "--namespace", containerdNamespace}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(bin.node, "ctr"), args...)
	cmd.Env = append(os.Environ(), "CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=true") // they would hide the error
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}
