package report

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// frame is the size of a drawing and its margins, in the SVG's own coordinates.
type frame struct {
	width, height                                    float64
	marginLeft, marginRight, marginTop, marginBottom float64
	ticksX, ticksY                                   int // approximate numbers of ticks
}

// The frames. named leaves room for the names of lines at their ends.
var (
	whole = frame{960, 330, 86, 18, 14, 56, 8, 5}
	named = frame{960, 330, 86, 128, 14, 56, 8, 5}
	panel = frame{310, 170, 74, 10, 10, 28, 3, 3}
	// narrow is for a second drawing for phones, which has the names in the legend.
	narrow = frame{370, 250, 70, 14, 12, 46, 4, 4}
)

// drawing is a figure that is being converted to SVG.
type drawing struct {
	strings.Builder
	frame   frame
	figure  *Figure
	bottoms [][]float64
	x, y    scale
	n       int // number of bars
}

// svg draws the figure.
func (f *Figure) svg() string {
	size := whole
	if f.Direct {
		size = named
	}
	if f.Low {
		size.height, size.ticksY = 210, 3
	}
	return f.draw(size)
}

func (f *Figure) draw(size frame) string {
	d := drawing{frame: size, figure: f, bottoms: f.bottoms(), n: f.bars()}
	xLow, xHigh, yLow, yHigh := f.ranges(d.bottoms)
	d.y = newScale(yLow, yHigh, d.frame.ticksY, f.Y.Unit)
	d.x = newScale(xLow, xHigh, d.frame.ticksX, f.X.Unit)
	d.x.low, d.x.high = xLow, max(xHigh, xLow+1e-9)
	if d.n > 0 {
		d.x.low, d.x.high = 0, float64(d.n)
	}
	class := map[frame]string{narrow: "narrow", panel: "panel"}[size]
	d.printf(`<svg class="%s" viewBox="0 0 %g %g" role="img" aria-label="%s">`, cmp.Or(class, "wide"), d.frame.width, d.frame.height, html.EscapeString(f.Title))
	d.grid()
	d.series()
	d.notes()
	if f.Direct && size != narrow {
		d.endNames()
	}
	if class == "" {
		d.hits()
	}
	d.WriteString(`</svg>`)
	return d.String()
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d, format, args...) }

// px and py convert values to coordinates.
func (d *drawing) px(x float64) float64 {
	return d.frame.marginLeft + (x-d.x.low)/(d.x.high-d.x.low)*(d.frame.width-d.frame.marginLeft-d.frame.marginRight)
}

func (d *drawing) py(y float64) float64 {
	return d.frame.height - d.frame.marginBottom - (y-d.y.low)/(d.y.high-d.y.low)*(d.frame.height-d.frame.marginTop-d.frame.marginBottom)
}

// grid draws the axes with their ticks and names.
func (d *drawing) grid() {
	left, right, bottom := d.frame.marginLeft, d.frame.width-d.frame.marginRight, d.frame.height-d.frame.marginBottom
	for _, tick := range d.y.ticks {
		y := d.py(tick)
		d.printf(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, right, y, y)
		d.printf(`<text class="tick" x="%.1f" y="%.1f" text-anchor="end">%s</text>`, left-8, y+4, d.y.label(tick))
	}
	d.printf(`<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, left, right, bottom, bottom)
	if d.n > 0 {
		d.barNames()
	} else {
		for _, tick := range d.x.ticks {
			if tick < d.x.low || tick > d.x.high {
				continue
			}
			x := d.px(tick)
			d.printf(`<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x, bottom, bottom+4)
			d.printf(`<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x, bottom+18, d.x.label(tick))
		}
	}
	d.printf(`<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
		(left+right)/2, d.frame.height-7, html.EscapeString(d.figure.X.Label))
	if d.figure.Y.Label == "" {
		return
	}
	d.printf(`<text class="side" transform="translate(14 %.1f) rotate(-90)" text-anchor="middle">%s</text>`,
		(d.frame.marginTop+bottom)/2, html.EscapeString(d.figure.Y.Label))
}

// letterWidth is the maximum mean width of a letter in a label; barLetterWidth is the same for a letter under a
// bar. Both are in the SVG's coordinates.
const letterWidth, barLetterWidth = 6.9, 7.4

// barNames writes the names of bars and of groups of bars underneath them.
func (d *drawing) barNames() {
	bottom := d.frame.height - d.frame.marginBottom
	names := d.figure.X.Names[:min(d.n, len(d.figure.X.Names))]
	widest := 0
	for _, name := range names {
		widest = max(widest, utf8.RuneCountInString(name))
	}
	every := max(int(math.Ceil((barLetterWidth*float64(widest)+2)/(d.px(1)-d.px(0)))), 1) // so that names do not overlap
	for i, name := range names {
		if i%every > 0 {
			continue
		}
		d.printf(`<text class="bar" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			d.px(float64(i)+0.5), bottom+12, html.EscapeString(name))
	}
	groups := d.figure.X.Groups[:min(d.n, len(d.figure.X.Groups))]
	for begin := 0; begin < len(groups); {
		end := begin + 1
		for end < len(groups) && groups[end] == groups[begin] {
			end++
		}
		if begin > 0 {
			x := d.px(float64(begin))
			d.printf(`<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x, d.frame.marginTop, bottom+26)
		}
		if d.px(float64(end))-d.px(float64(begin)) > letterWidth*float64(utf8.RuneCountInString(groups[begin]))+4 {
			d.printf(`<text class="tick" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
				d.px(float64(begin+end)/2), bottom+29, html.EscapeString(groups[begin]))
		}
		begin = end
	}
}

// series draws the points mark by mark, areas first and dots last, so that dots cover lines.
func (d *drawing) series() {
	for _, mark := range [...]Mark{Area, Bars, Band, Level, Line, Dash, Ticks, Dots} {
		for i := range d.figure.Series {
			s := &d.figure.Series[i]
			if s.Mark != mark || len(s.Buckets) == 0 {
				continue
			}
			switch mark {
			case Area:
				bottom := d.bottoms[i]
				d.ribbon(s, "area", func(j int) float64 { return bottom[j] + s.Buckets[j].Mean() }, func(j int) float64 { return bottom[j] })
			case Bars:
				for j, b := range s.Buckets {
					if b.Mean() > 0 {
						low, high := d.py(d.bottoms[i][j]), d.py(d.bottoms[i][j]+b.Mean())
						left, right := d.bar(j)
						d.printf(`<rect class="c%d fill" x="%.1f" y="%.2f" width="%.1f" height="%.2f"/>`, s.Color, left, high, right-left, low-high)
					}
				}
			case Band:
				d.ribbon(s, "band", func(i int) float64 { return s.Buckets[i].Max }, func(i int) float64 { return s.Buckets[i].Min })
			case Level:
				y := d.py(s.Buckets[0].Mean())
				d.printf(`<line class="c%d level" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, s.Color, d.frame.marginLeft, d.frame.width-d.frame.marginRight, y, y)
			case Line:
				d.line(s, "line")
			case Dash:
				d.line(s, "line dashed")
			case Ticks:
				for _, b := range s.Buckets {
					left, right := d.bar(int(b.First))
					d.printf(`<line class="c%d line" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, s.Color, left-4, right+4, d.py(b.Mean()), d.py(b.Mean()))
				}
			case Dots:
				if len(s.Buckets) > 2 {
					d.line(s, "thin")
				}
				for _, b := range s.Buckets {
					d.printf(`<circle class="c%d dot" cx="%.1f" cy="%.1f" r="4"/>`, s.Color, d.px(mid(b)), d.py(b.Mean()))
				}
			}
		}
	}
}

func mid(b Bucket) float64 { return (b.First + b.Last) / 2 }

// widestBar is the maximum width of a bar.
const widestBar = 72

// bar returns the x coordinates of the sides of bar i.
func (d *drawing) bar(i int) (left, right float64) {
	room := d.px(1) - d.px(0)
	half := min(room-min(1.5, room*0.15), widestBar) / 2
	middle := d.px(float64(i) + 0.5)
	return middle - half, middle + half
}

// ribbon fills the area between two values of every bucket.
func (d *drawing) ribbon(s *Series, class string, high, low func(i int) float64) {
	d.printf(`<path class="c%d %s" d="`, s.Color, class)
	letter := 'M'
	edge := func(from, to, y float64) {
		d.printf("%c%.1f %.1f", letter, d.px(from), d.py(y))
		letter = 'L'
		if from != to {
			d.printf("L%.1f %.1f", d.px(to), d.py(y))
		}
	}
	for i, b := range s.Buckets {
		edge(b.First, b.Last, high(i))
	}
	for i, b := range slices.Backward(s.Buckets) {
		edge(b.Last, b.First, low(i))
	}
	d.WriteString(`Z"/>`)
}

func (d *drawing) line(s *Series, class string) {
	d.printf(`<path class="c%d %s" d="`, s.Color, class)
	letter := 'M'
	for i, b := range s.Buckets {
		x := mid(b)
		switch { // the ends of the line are at the ends of the data
		case i == 0:
			x = b.First
		case i == len(s.Buckets)-1:
			x = b.Last
		}
		d.printf("%c%.1f %.1f", letter, d.px(x), d.py(b.Mean()))
		letter = 'L'
	}
	d.WriteString(`"/>`)
}

// hits lays a transparent column with a tooltip over every bucket of the series with the most
// buckets.
func (d *drawing) hits() {
	base := &Series{}
	for i := range d.figure.Series {
		if s := &d.figure.Series[i]; s.Mark != Level && len(s.Buckets) > len(base.Buckets) {
			base = s
		}
	}
	for i, b := range base.Buckets {
		from, to := b.First, b.Last
		var left, right float64
		if d.n > 0 {
			left, right = d.px(float64(i)), d.px(float64(i+1))
		} else {
			left, right = d.px(from), d.px(to)
			if i > 0 {
				left = (left + d.px(base.Buckets[i-1].Last)) / 2
			}
			if i < len(base.Buckets)-1 {
				right = (right + d.px(base.Buckets[i+1].First)) / 2
			}
		}
		d.printf(`<rect class="hit" x="%.1f" y="%g" width="%.1f" height="%g" data-tip="%s"/>`,
			left, d.frame.marginTop, max(right-left, 1), d.frame.height-d.frame.marginTop-d.frame.marginBottom, html.EscapeString(d.tip(i, from, to)))
	}
}

// tip returns the tooltip of a bucket: a line with its position, and one for each series that has a value there.
func (d *drawing) tip(i int, from, to float64) string {
	var b strings.Builder
	unit := d.figure.X.Unit
	switch {
	case d.figure.X.Tooltip != nil:
		b.WriteString(d.figure.X.Tooltip(i))
	case d.n > 0:
		for _, names := range [...][]string{d.figure.X.Groups, d.figure.X.Names} {
			if i < len(names) {
				b.WriteString(names[i] + " ")
			}
		}
	case from == to:
		b.WriteString(d.figure.X.Label + " " + unit.text(from))
	default:
		b.WriteString(d.figure.X.Label + " " + unit.text(from) + " to " + unit.text(to))
	}
	for s := range d.figure.Series {
		series := &d.figure.Series[s]
		if series.Mark == Level {
			b.WriteString("\n" + series.Name + ": " + d.figure.Y.Unit.text(series.Buckets[0].Mean()))
			continue
		}
		for j, bucket := range series.Buckets {
			if d.n > 0 && (j != i && series.Mark != Ticks || series.Mark == Ticks && int(bucket.First) != i) || d.n == 0 && (bucket.Last < from || bucket.First > to) {
				continue
			}
			if d.n > 0 && bucket.Mean() == 0 {
				continue
			}
			b.WriteString("\n" + series.Name + ": " + tipValue(bucket, d.figure.Y.Unit))
			break
		}
	}
	return b.String()
}

func tipValue(b Bucket, unit Unit) string {
	if b.Min == b.Max {
		return unit.text(b.Min)
	}
	return unit.text(b.Min) + " to " + unit.text(b.Max)
}
