package raster_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/raster"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
)

// drawn returns the SVG of a step, and its PNG.
func drawn(t *testing.T, front []draw.Front) (svg string, picture image.Image) {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
	require.NoError(t, err)
	step, err := draw.Simulate(plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1, Saved: 1}}}, schedule.Unlimited)
	require.NoError(t, err)
	step.Front = front
	var text, out bytes.Buffer
	require.NoError(t, step.SVG(&text))
	require.NoError(t, raster.PNG(&out, text.Bytes()))
	picture, err = png.Decode(&out)
	require.NoError(t, err)
	return text.String(), picture
}

func hex(c color.Color) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}

var box = regexp.MustCompile(`<rect class="([FB])" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="27"`)

// Every box has its color, and a number in another one.
func TestPNG(t *testing.T) {
	svg, picture := drawn(t, nil)
	boxes := box.FindAllStringSubmatch(svg, -1)
	require.Len(t, boxes, 16)
	for _, b := range boxes {
		_, fill, _ := strings.Cut(svg, "."+b[1]+"{fill:")
		var x, y, width float64
		_, err := fmt.Sscan(b[2]+" "+b[3]+" "+b[4], &x, &y, &width)
		require.NoError(t, err)
		require.Equal(t, fill[:7], hex(picture.At(int(2*x)+6, int(2*y)+6)), b[0])
		seen := map[string]bool{}
		for at := int(2*x) + 6; at < int(2*(x+width))-6; at++ {
			seen[hex(picture.At(at, int(2*y)+27))] = true
		}
		require.Greater(t, len(seen), 2, "no number in %s", b[0])
	}
	require.Equal(t, "#ffffff", hex(picture.At(0, 0)))
}

// The actions after the front, which have not run, are faded, and the rank to blame is marked.
func TestFront(t *testing.T) {
	pixels := func(picture image.Image, of string) (n int) {
		for y := range picture.Bounds().Dy() {
			for x := range picture.Bounds().Dx() {
				if hex(picture.At(x, y)) == of {
					n++
				}
			}
		}
		return n
	}
	svg, plain := drawn(t, nil)
	_, bad, _ := strings.Cut(svg, ".front{stroke:")
	_, front := drawn(t, []draw.Front{{Time: 4}, {Time: 9, Blamed: true}})
	require.Zero(t, pixels(plain, bad[:7]))
	require.Greater(t, pixels(front, bad[:7]), 1000) // the legend's dot and the large one have 600 each
	_, fill, _ := strings.Cut(svg, ".F{fill:")
	require.Less(t, pixels(front, fill[:7]), pixels(plain, fill[:7]))
}

func TestTooLarge(t *testing.T) {
	require.ErrorIs(t, raster.PNG(nil, []byte(`<svg viewBox="0 0 10000 10000"></svg>`)), raster.ErrTooLarge)
	require.Error(t, raster.PNG(nil, []byte(`<svg>`)))
	require.Error(t, raster.PNG(nil, []byte(`<svg viewBox="0 0 1"></svg>`)))
}
