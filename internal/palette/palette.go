package palette

import (
	"fmt"
	"math"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Color is a color of data.
type Color uint8

// The colors of data. Readers who cannot tell red from green can tell them apart by their lightness.
const (
	Blue Color = iota
	Orange
	Aqua
	Yellow
	Violet
	Red
	Green
	Magenta
	Gray
	Brown
	Cyan
	NumColors
)

// tones are the colors of both modes, by the name of their variable in a style sheet: back is behind
// cards, and card behind everything else.
var tones = [...]struct {
	name        string
	light, dark uint32
}{
	{"c0", 0x2470cf, 0x679ef1},
	{"c1", 0xbf370d, 0xc25217},
	{"c2", 0x4cbba7, 0x4dbba2},
	{"c3", 0xf1b83c, 0xfac952},
	{"c4", 0x4041ba, 0x6f71e0},
	{"c5", 0xb42143, 0xf76270},
	{"c6", 0x3d8b29, 0x339255},
	{"c7", 0xc361a3, 0xd97bbc},
	{"c8", 0x7c817e, 0x7a818a},
	{"c9", 0x5d391a, 0x8e5e30},
	{"c10", 0x62c1e3, 0x7cd1eb},
	{"back", 0xf5f6f4, 0x0e1113},
	{"card", 0xffffff, 0x14171a},
	{"lane", 0xeef0ef, 0x22272b},
	{"rule", 0xdfe2e1, 0x30363a},
	{"axis", 0xaab1b4, 0x5b656b},
	{"ink", 0x14181b, 0xeceff0},
	{"soft", 0x586066, 0xa3acb1},
	{"good", 0x00795a, 0x3ecf9b},
	{"bad", 0xc02f2e, 0xff8a80},
}

// Kind returns the color of a kind of action, and false if pictures do not show the kind.
func Kind(kind schedule.Kind) (Color, bool) {
	color, ok := map[schedule.Kind]Color{
		schedule.F: Blue, schedule.B: Orange, schedule.I: Aqua, schedule.W: Yellow, schedule.Quantize: Violet,
		schedule.Offload: Gray, schedule.Reload: Green, schedule.ReduceGrad: Magenta, schedule.Unshard: Brown,
	}[kind]
	return color, ok
}

// Class returns the color of a class of memory.
func Class(class memory.Class) Color {
	return [memory.NumClasses]Color{
		memory.Resident: Gray, memory.Entry: Yellow, memory.Activation: Orange, memory.ActGrad: Violet,
		memory.Saved: Aqua, memory.Carry: Green, memory.Transfer: Magenta, memory.Workspace: Red,
		memory.Loss: Blue, memory.FP8: Cyan, memory.Unsharded: Brown,
	}[class]
}

// Variables returns a style sheet that defines every color as a variable, such as --c0 and --ink.
func Variables() string {
	var rules strings.Builder
	rules.WriteString(":root{")
	for _, t := range tones {
		fmt.Fprintf(&rules, "--%s:var(--%[1]s);", t.name)
	}
	return Sheet(rules.String() + "}")
}

// Sheet returns style rules with the colors of light mode in place of variables such as var(--c0), and after
// them the same rules for dark mode. Not every program that reads SVG supports variables.
func Sheet(rules string) string {
	var light, dark []string
	for _, t := range tones {
		variable := "var(--" + t.name + ")"
		light, dark = append(light, variable, fmt.Sprintf("#%06x", t.light)), append(dark, variable, fmt.Sprintf("#%06x", t.dark))
	}
	return strings.NewReplacer(light...).Replace(rules) + "@media (prefers-color-scheme:dark){" + strings.NewReplacer(dark...).Replace(rules) + "}\n"
}

// Text returns the classes of a text on a color that covers a lane with an opacity: "d" if it is black
// in light mode, and "k" if it is black in dark mode. Otherwise it is white.
func Text(color Color, opacity float64) (classes string) {
	back := tones[NumColors+2]
	if blackOn(tones[color].light, back.light, opacity) {
		classes += " d"
	}
	if blackOn(tones[color].dark, back.dark, opacity) {
		classes += " k"
	}
	return strings.TrimSpace(classes)
}

// TextRules are the style rules of the classes that Text returns, in elements of class n.
const TextRules = ".n text{fill:#fff}.n .d{fill:#000}@media (prefers-color-scheme:dark){.n .d{fill:#fff}.n .k{fill:#000}}\n"

// blackOn reports whether black is easier to read than white on a color that covers another one with an
// opacity. One of the two has a contrast of at least 4.58.
func blackOn(color, back uint32, opacity float64) bool {
	luminance := 0.0 // as WCAG 2 defines it
	for channel, weight := range [...]float64{0.0722, 0.7152, 0.2126} {
		shift := 8 * channel
		v := (opacity*float64(color>>shift&255) + (1-opacity)*float64(back>>shift&255)) / 255
		if v <= 0.04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+0.055)/1.055, 2.4)
		}
		luminance += weight * v
	}
	return (luminance+0.05)*(luminance+0.05) > 1.05*0.05
}
