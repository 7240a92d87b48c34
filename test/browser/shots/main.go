// Command shots makes pictures of a running page for the documentation. Their files are small: a
// picture has the 256 colours that it uses most.
//
//	seamark ui --no-browser --contexts east,west,north      prints an address
//	go run ./shots -o ../../docs/screenshots 'ADDRESS' services=/services?all=1 clusters=/clusters
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cd "github.com/chromedp/chromedp"

	"github.com/seamark-dev/seamark/test/browser"
)

type options struct {
	out           string
	width, height int64
	dark          bool
}

func main() {
	var o options
	flag.StringVar(&o.out, "o", ".", "folder of the pictures")
	flag.Int64Var(&o.width, "width", 1200, "width of the page")
	flag.Int64Var(&o.height, "height", 640, "height of the page")
	flag.BoolVar(&o.dark, "dark", false, "show the page as users with a dark desktop see it")
	flag.Parse()
	if err := run(o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "shots:", err)
		os.Exit(1)
	}
}

func run(o options, args []string) error {
	if len(args) < 2 {
		return errors.New("the arguments are the address that seamark ui printed, and a NAME=PATH for each picture")
	}
	page, token, found := strings.Cut(args[0], "/services#")
	if !found {
		return fmt.Errorf("%s is not an address that seamark ui prints", args[0])
	}
	parent, stop, err := browser.Launch()
	if err != nil {
		return err
	}
	defer stop()
	for _, arg := range args[1:] {
		name, path, _ := strings.Cut(arg, "=")
		picture, err := shoot(parent, o, page+path+"#"+token)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := write(filepath.Join(o.out, name+".png"), picture); err != nil {
			return err
		}
	}
	return nil
}

// shoot opens an address and returns a picture of it, when the page has been drawn and had time to
// ask the workloads of a service.
func shoot(parent context.Context, o options, address string) ([]byte, error) {
	ctx, cancel := cd.NewContext(parent, cd.WithNewBrowserContext())
	defer cancel()
	scheme := map[bool]string{false: "light", true: "dark"}[o.dark]
	err := cd.Do(ctx, cd.EmulateViewport(o.width, o.height), func(ctx context.Context, _ *cd.Target) (cd.Void, error) {
		_, err := cd.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return cd.Void{}, err
	}, cd.Navigate(address))
	if err != nil {
		return nil, err
	}
	if _, err := cd.Run(ctx, cd.Poll[bool](`document.documentElement.dataset.ready === "true"`, cd.WithPollingTimeout(time.Minute))); err != nil {
		return nil, err
	}
	time.Sleep(8 * time.Second) // a few rounds of questions to workloads
	return cd.Run(ctx, cd.CaptureScreenshot())
}

// write writes a picture with a palette.
func write(path string, picture []byte) error {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return err
	}
	reduced := image.NewPaletted(full.Bounds(), paletteOf(full))
	nearest := map[color.Color]uint8{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			c := full.At(x, y)
			at, known := nearest[c]
			if !known {
				at = uint8(reduced.Palette.Index(c))
				nearest[c] = at
			}
			reduced.SetColorIndex(x, y, at)
		}
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = errors.Join((&png.Encoder{CompressionLevel: png.BestCompression}).Encode(file, reduced), file.Close())
	if info, failed := os.Stat(path); failed == nil {
		fmt.Printf("%s: %d KiB\n", path, info.Size()>>10)
	}
	return err
}

// paletteOf returns the colours that a picture uses most.
func paletteOf(picture image.Image) color.Palette {
	count := map[color.Color]int{}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			count[picture.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	return colours[:min(len(colours), 256)]
}
