package report

import (
	"strings"

	"github.com/weir-ml/weir/internal/palette"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// Mark is how a series is drawn.
type Mark uint8

// The marks.
const (
	Line  Mark = iota // through the means
	Band              // filled from the minimum to the maximum
	Dots              // one for each bucket, on a thin line
	Level             // a dashed line across the plot at the mean of the first bucket
	Bars              // stacked on the bars of the previous series
	Dash              // like Line, but dashed
	Ticks             // a short line across each bar
	Area              // up to the means, stacked on the areas of the previous series; all must have the same buckets
)

// Color is an entry of the page's palette. Each color has a light and a dark form.
type Color uint8

// The palette.
const (
	Blue    = Color(palette.Blue)
	Orange  = Color(palette.Orange)
	Aqua    = Color(palette.Aqua)
	Yellow  = Color(palette.Yellow)
	Violet  = Color(palette.Violet)
	Red     = Color(palette.Red)
	Green   = Color(palette.Green)
	Magenta = Color(palette.Magenta)
	Gray    = Color(palette.Gray)
	Brown   = Color(palette.Brown)
	Cyan    = Color(palette.Cyan)
)

// ClassColor returns the color of a class of memory, which is the same in every figure.
func ClassColor(class memory.Class) Color { return Color(palette.Class(class)) }

// KindColor returns the color of a kind of action, which is the same in every figure. Kinds without a color of
// their own are gray.
func KindColor(kind schedule.Kind) Color {
	color, ok := palette.Kind(kind)
	if !ok {
		return Gray
	}
	return Color(color)
}

// Series is one set of points of a figure.
type Series struct {
	Name    string // "" for a series that belongs to another one and has no name of its own
	Mark    Mark
	Color   Color
	Buckets []Bucket
}

// Axis is one axis of a figure.
type Axis struct {
	Label string
	Unit  Unit
	// FromZero makes the axis include 0. Reach, if above 0, is a number that the vertical axis
	// must also include.
	FromZero bool
	Reach    float64
	// Names are written under the bars of a figure, one for each bar, and Groups under
	// consecutive bars of the same group.
	Names, Groups []string
	// Tooltip, if set, returns the tooltip of bucket i.
	Tooltip func(i int) string
}

// Note is a label at a position: a thin line up from the axis, with the text next to it.
type Note struct {
	X    float64
	Text string
}

// Figure is one plot. In a series of bars, bar i shows bucket i.
type Figure struct {
	Title   string
	Caption string
	X, Y    Axis
	Series  []Series
	Notes   []Note
	// Direct writes the names of lines at their ends instead of in a legend.
	Direct bool
	// Low reduces the height of a figure with few details by about a third.
	Low bool
}

// named reports whether the name of a series is written at its end.
func (f *Figure) named(s *Series) bool {
	return f.Direct && s.Name != "" && (s.Mark == Line || s.Mark == Dash)
}

// bars returns the number of bars, or 0 if the figure has none.
func (f *Figure) bars() int {
	n := 0
	for i := range f.Series {
		if f.Series[i].Mark == Bars {
			n = max(n, len(f.Series[i].Buckets))
		}
	}
	return n
}

// empty reports whether there is nothing to draw.
func (f *Figure) empty() bool {
	for i := range f.Series {
		if len(f.Series[i].Buckets) > 0 {
			return false
		}
	}
	return true
}

// sentence describes a figure that is not worth plotting, because its series are constant or have
// at most two points. It returns "" for other figures, and for all figures with bars or ticks.
func (f *Figure) sentence() string {
	longest, flat := 0, true
	for i := range f.Series {
		s := &f.Series[i]
		if s.Mark == Bars || s.Mark == Ticks {
			return ""
		}
		if s.Mark == Level {
			continue
		}
		longest = max(longest, len(s.Buckets))
		for _, b := range s.Buckets {
			flat = flat && b.Min == b.Max && b.Min == s.Buckets[0].Min
		}
	}
	if longest > 2 && !flat {
		return ""
	}
	var parts []string
	for i := range f.Series {
		s := &f.Series[i]
		if s.Name == "" || len(s.Buckets) == 0 {
			continue
		}
		text := s.Name + " " + f.Y.Unit.text(s.Buckets[0].Mean())
		for _, b := range s.Buckets[1:] {
			if !flat {
				text += ", then " + f.Y.Unit.text(b.Mean())
			}
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, "; ")
	if flat && longest > 1 {
		text = "Nothing changes: " + text
	}
	return text + "."
}

// bottoms returns, for each series, the lower ends of its bars or areas, which are stacked on those of the
// previous series with the same mark.
func (f *Figure) bottoms() [][]float64 {
	bottoms, tops := make([][]float64, len(f.Series)), map[Mark][]float64{}
	for i := range f.Series {
		s := &f.Series[i]
		if s.Mark != Bars && s.Mark != Area {
			continue
		}
		top := tops[s.Mark]
		for j, b := range s.Buckets {
			if j == len(top) {
				top = append(top, 0)
			}
			bottoms[i] = append(bottoms[i], top[j])
			top[j] += b.Mean()
		}
		tops[s.Mark] = top
	}
	return bottoms
}

// ranges returns the ranges that the axes must cover.
func (f *Figure) ranges(bottoms [][]float64) (xLow, xHigh, yLow, yHigh float64) {
	first, stacked := true, false
	var levels []float64
	cover := func(x, y float64) {
		if first {
			xLow, xHigh, yLow, yHigh, first = x, x, y, y, false
			return
		}
		xLow, xHigh = min(xLow, x), max(xHigh, x)
		yLow, yHigh = min(yLow, y), max(yHigh, y)
	}
	for i := range f.Series {
		s := &f.Series[i]
		for j, b := range s.Buckets {
			low, high := b.Mean(), b.Mean()
			switch s.Mark {
			case Level:
				levels = append(levels, b.Mean())
				continue
			case Band:
				low, high = b.Min, b.Max
			case Bars, Area:
				low, high, stacked = bottoms[i][j]+b.Mean(), bottoms[i][j]+b.Mean(), true
			}
			cover(b.First, low)
			cover(b.Last, high)
		}
	}
	for _, y := range levels {
		cover(xLow, y)
	}
	if f.X.FromZero {
		xLow = min(xLow, 0)
	}
	if f.Y.FromZero || stacked {
		yLow = min(yLow, 0)
	}
	if f.Y.Reach > 0 {
		yHigh = max(yHigh, f.Y.Reach)
	}
	return xLow, xHigh, yLow, yHigh
}
