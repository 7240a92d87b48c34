// Command images builds the image of the daemons without Docker, and writes it to a file or pushes
// it to a registry:
//
//	go run ./build/images -o seamark.tar                              # for this machine
//	go run ./build/images -o seamark.tar --arch amd64,arm64           # both, as one OCI archive
//	go run ./build/images --push registry.example.com/seamark:v1.0.0  # both, unless --arch is set
//	go run ./build/images --image workload -o workload.tar            # for the pods of tests
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/seamark-dev/seamark/internal/sandbox/image"
	"github.com/seamark-dev/seamark/internal/sandbox/kubeparts"
)

type options struct {
	output, push, which, name, version, arch string
}

func main() {
	var o options
	flag.StringVar(&o.output, "o", "", "write the image to this `file.tar`")
	flag.StringVar(&o.push, "push", "", "push the image under this `name`, registry and tag included")
	flag.StringVar(&o.which, "image", "daemons", "which image: daemons or workload")
	flag.StringVar(&o.name, "name", "", "name and tag of the image in the file (default: the project's name with the version as tag)")
	flag.StringVar(&o.version, "version", "dev", "version of the programs")
	flag.StringVar(&o.arch, "arch", "", "architectures, separated by commas (default: this machine's for a file, all for a registry)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if flag.NArg() > 0 || (o.output == "" && o.push == "") {
		return fmt.Errorf("choose where the image goes: -o FILE.tar, --push NAME or both")
	}
	root, err := kubeparts.Root()
	if err != nil {
		return err
	}
	recipe, err := recipeOf(root, o.which)
	if err != nil {
		return err
	}
	var images []v1.Image
	for _, arch := range o.architectures() {
		started := time.Now()
		built, err := image.Builder{Root: root, Version: o.version}.Build(ctx, recipe, arch)
		if err != nil {
			return err
		}
		images = append(images, built)
		fmt.Fprintf(os.Stderr, "%s for %s: built in %s\n", recipe.Repository, arch, time.Since(started).Round(100*time.Millisecond))
	}
	if o.output != "" {
		if o.name == "" {
			o.name = recipe.Repository + ":" + o.version
		}
		if err := image.WriteTar(o.output, o.name, images...); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s: written to %s\n", o.name, o.output)
	}
	if o.push != "" {
		digest, err := image.Push(ctx, o.push, images...)
		if err != nil {
			return err
		}
		fmt.Printf("%s@%s\n", o.push, digest)
	}
	return nil
}

func recipeOf(root, which string) (image.Recipe, error) {
	switch which {
	case "daemons":
		return image.Daemons(root)
	case "workload":
		return image.Workload(), nil
	}
	return image.Recipe{}, fmt.Errorf("unknown image %q: choose daemons or workload", which)
}

func (o options) architectures() []string {
	switch {
	case o.arch != "":
		return strings.Split(o.arch, ",")
	case o.push != "":
		return image.Architectures
	}
	return []string{image.HostArchitecture()}
}
