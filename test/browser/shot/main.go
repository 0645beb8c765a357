// Command shot saves a picture of a web page as a small PNG: the documentation's
// picture of the page is made with it.
//
//	go run ./test/browser/shot -url http://localhost:10944/ -await 'weights resident' -o docs/images/page.png
package main

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

type options struct {
	url, await, out, scheme string
	width, height           int64
	timeout                 time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.url, "url", "http://localhost:10944/", "the page")
	flag.StringVar(&o.await, "await", "live", "wait for this `TEXT` on it")
	flag.StringVar(&o.out, "o", "page.png", "the picture's `FILE`")
	flag.StringVar(&o.scheme, "scheme", "light", "light or dark")
	flag.Int64Var(&o.width, "width", 900, "pixels")
	flag.Int64Var(&o.height, "height", 1200, "pixels")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Minute, "how long to wait")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "shot:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	ctx, end := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)...)
	defer end()
	ctx, end = chromedp.NewContext(ctx)
	defer end()
	if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: o.width, Height: o.height, DeviceScaleFactor: 1}); err != nil {
		return err
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: o.scheme}}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate(o.url)); err != nil {
		return err
	}
	if err := await(ctx, o.await); err != nil {
		return err
	}
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	small, err := shrink(shot)
	if err != nil {
		return err
	}
	return os.WriteFile(o.out, small, 0o644)
}

func await(ctx context.Context, text string) error {
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		seen, err := chromedp.Run(ctx, chromedp.Evaluate[bool](fmt.Sprintf("document.body.innerText.includes(%q)", text)))
		if err != nil || seen {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%q does not come: %w", text, ctx.Err())
		}
	}
}

// shrink writes a PNG with the 256 commonest colours: a page has few.
func shrink(in []byte) ([]byte, error) {
	img, err := png.Decode(bytes.NewReader(in))
	if err != nil {
		return nil, err
	}
	count := map[color.Color]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			count[img.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	few := image.NewPaletted(img.Bounds(), colours[:min(len(colours), 256)])
	draw.Draw(few, few.Bounds(), img, img.Bounds().Min, draw.Src)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err = encoder.Encode(&out, few)
	return out.Bytes(), err
}
