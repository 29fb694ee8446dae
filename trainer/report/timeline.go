package report

import (
	"fmt"
	"html"
	"html/template"
	"strings"

	"github.com/weir-ml/weir/internal/palette"
	"github.com/weir-ml/weir/schedule/units"
)

// Timeline shows the activity of several workers over time, with a row for each worker and a
// block for each span.
type Timeline struct {
	Title, Caption string
	Rows           []TimelineRow
	Legend         []Label
}

// Label is a color in a legend, and its meaning.
type Label struct {
	Name  string
	Color Color
}

// TimelineRow is the row of one worker.
type TimelineRow struct {
	Name  string
	Spans []Span
}

// Span is work from Start to End, in seconds. Its label is in the tooltip, and is also written in
// the block if it fits.
type Span struct {
	Start, End float64
	Label      string
	Color      Color
}

// svg draws the timeline from the start of its first span to the end of its last. It returns "" if that time is 0.
func (t *Timeline) svg() template.HTML {
	const width, left, row, gap, bottom = 960., 70., 26., 6., 40.
	low, high, any := 0., 0., false
	for _, r := range t.Rows {
		for _, s := range r.Spans {
			if !any || s.Start < low {
				low = s.Start
			}
			high, any = max(high, s.End), true
		}
	}
	if !any || high <= low {
		return ""
	}
	x := func(at float64) float64 { return left + (width-left-10)*(at-low)/(high-low) }
	height := float64(len(t.Rows))*(row+gap) + bottom
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, html.EscapeString(t.Title))
	scale := newScale(0, high-low, 6, Plain)
	for _, tick := range scale.ticks {
		if low+tick > high {
			break
		}
		at := x(low + tick)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="0" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`,
			at, at, height-bottom, at, height-bottom+18, html.EscapeString(units.Seconds(tick)))
	}
	for i, r := range t.Rows {
		y := float64(i) * (row + gap)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`, left-8, y+row/2+4, html.EscapeString(r.Name))
		for _, s := range r.Spans {
			from, to, label := x(s.Start), x(s.End), html.EscapeString(s.Label)
			class := "span"
			if to-from < 2 {
				class = "fill" // an outline would cover it
			}
			fmt.Fprintf(&b, `<g class="n c%d"><title>%s, %s</title><rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%g"/>`,
				s.Color, label, html.EscapeString(units.Seconds(s.End-s.Start)), class, from, y, max(to-from, 0.5), row)
			if to-from > 7*float64(len(s.Label))+4 {
				fmt.Fprintf(&b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, palette.Text(palette.Color(s.Color), 1), (from+to)/2, y+row/2+4, label)
			}
			b.WriteString(`</g>`)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}
