package palette_test

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/palette"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// rgb is a color in linear light.
type rgb [3]float64

func parse(t *testing.T, text string) (c rgb) {
	var v [3]uint8
	_, err := fmt.Sscanf(text, "#%02x%02x%02x", &v[0], &v[1], &v[2])
	require.NoError(t, err, text)
	for i := range c {
		c[i] = linear(float64(v[i]) / 255)
	}
	return c
}

func linear(v float64) float64 {
	if v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}

func encoded(v float64) float64 {
	if v <= 0.0031308 {
		return 12.92 * v
	}
	return 1.055*math.Pow(v, 1/2.4) - 0.055
}

// luminance is the relative luminance of WCAG 2.2.
func (c rgb) luminance() float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

// contrast is the contrast ratio of WCAG 2.2.
func contrast(a, b rgb) float64 {
	x, y := a.luminance(), b.luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// over covers a color with another one, as browsers do: on the encoded values.
func over(color, back rgb, opacity float64) (c rgb) {
	for i := range c {
		c[i] = linear(opacity*encoded(color[i]) + (1-opacity)*encoded(back[i]))
	}
	return c
}

// The matrices of Machado, Oliveira and Fernandes (2009), severity 1.
var views = map[string][3][3]float64{
	"normal":       {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
}

func seen(c rgb, by [3][3]float64) (v rgb) {
	for i := range v {
		v[i] = min(max(by[i][0]*c[0]+by[i][1]*c[1]+by[i][2]*c[2], 0), 1)
	}
	return v
}

// lab returns CIELAB coordinates for D65.
func (c rgb) lab() (l rgb) {
	var f [3]float64
	for i, row := range [3][3]float64{{0.4124564, 0.3575761, 0.1804375}, {0.2126729, 0.7151522, 0.0721750}, {0.0193339, 0.1191920, 0.9503041}} {
		x := (row[0]*c[0] + row[1]*c[1] + row[2]*c[2]) / [3]float64{0.95047, 1, 1.08883}[i]
		if f[i] = math.Cbrt(x); x <= 216.0/24389 {
			f[i] = (24389.0/27*x + 16) / 116
		}
	}
	return rgb{116*f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])}
}

// distance is the difference CIE76 of two colors.
func distance(a, b rgb) float64 {
	x, y := a.lab(), b.lab()
	return math.Hypot(math.Hypot(x[0]-y[0], x[1]-y[1]), x[2]-y[2])
}

// modes returns the colors of light and dark mode by name.
func modes(t *testing.T) map[string]map[string]rgb {
	all := map[string]map[string]rgb{}
	light, dark, found := strings.Cut(palette.Variables(), "@media (prefers-color-scheme:dark)")
	require.True(t, found)
	for mode, text := range map[string]string{"light": light, "dark": dark} {
		all[mode] = map[string]rgb{"black": {}, "white": {1, 1, 1}}
		for _, m := range regexp.MustCompile(`--(\w+):(#\w+)`).FindAllStringSubmatch(text, -1) {
			all[mode][m[1]] = parse(t, m[2])
		}
		require.Len(t, all[mode], int(palette.NumColors)+11)
	}
	return all
}

// All text has the contrast that WCAG 2.2 requires at level AA, on pages and on every color with an opacity
// of at least 45 %.
func TestContrast(t *testing.T) {
	const least = 4.5
	for mode, colors := range modes(t) {
		for _, ink := range []string{"ink", "soft", "good", "bad"} {
			for _, back := range []string{"back", "card"} {
				require.GreaterOrEqual(t, contrast(colors[ink], colors[back]), least, "%s on %s, %s", ink, back, mode)
			}
		}
		for color := range palette.NumColors {
			for percent := 45; percent <= 100; percent++ {
				opacity := float64(percent) / 100
				text := "white"
				if slices.Contains(strings.Fields(palette.Text(color, opacity)), map[string]string{"light": "d", "dark": "k"}[mode]) {
					text = "black"
				}
				shade := over(colors[fmt.Sprint("c", color)], colors["lane"], opacity)
				require.GreaterOrEqual(t, contrast(colors[text], shade), least, "%s on c%d, %d %%, %s", text, color, percent, mode)
			}
			require.GreaterOrEqual(t, contrast(colors[fmt.Sprint("c", color)], colors["card"]), 1.7, "c%d on a card, %s", color, mode)
		}
		require.GreaterOrEqual(t, contrast(colors["card"], colors["c0"]), least, "a name on blue, %s", mode) // docs/profile/picture.py
	}
}

// Colors of actions that are in one picture, and of classes of memory, differ for readers with
// normal sight, deuteranopia and protanopia.
func TestDistances(t *testing.T) {
	for mode, colors := range modes(t) {
		for view, matrix := range views {
			check := func(least float64, list []palette.Color) {
				for i, a := range list {
					for _, b := range list[:i] {
						d := distance(seen(colors[fmt.Sprint("c", a)], matrix), seen(colors[fmt.Sprint("c", b)], matrix))
						require.GreaterOrEqual(t, d, least, "c%d and c%d, %s, %s", a, b, mode, view)
					}
				}
			}
			var kinds, classes []palette.Color
			for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I, schedule.W} {
				color, ok := palette.Kind(kind)
				require.True(t, ok)
				kinds = append(kinds, color)
			}
			for class := range memory.NumClasses {
				classes = append(classes, palette.Class(memory.Class(class)))
			}
			check(33, kinds)
			check(14, classes)
		}
	}
}

// The pictures of the documentation have no other colors.
func TestDocs(t *testing.T) {
	known, files := palette.Variables()+"#fff#000#ffffff#000000", 0
	require.NoError(t, filepath.WalkDir("../../docs", func(path string, entry fs.DirEntry, err error) error {
		if ending := filepath.Ext(path); err != nil || ending != ".svg" && ending != ".py" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, color := range regexp.MustCompile(`#[0-9a-f]{6}\b`).FindAllString(string(text), -1) {
			require.Contains(t, known, color, path)
		}
		files++
		return err
	}))
	require.Greater(t, files, 20)
}
