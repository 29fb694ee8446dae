package report

import (
	"cmp"
	"html"
	"slices"
)

// notes draws the notes of the plot.
func (d *drawing) notes() {
	for _, n := range d.figure.Notes {
		x := d.px(min(max(n.X, d.x.low), d.x.high))
		anchor, shift := "start", 6.0
		if x > (d.frame.width-d.frame.marginRight)*0.66 {
			anchor, shift = "end", -6
		}
		d.printf(`<line class="note" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x, x, d.frame.marginTop, d.frame.height-d.frame.marginBottom)
		d.printf(`<text class="note" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x+shift, d.frame.marginTop+11, anchor, html.EscapeString(n.Text))
	}
}

// nameHeight is the height of a name at the end of a line.
const nameHeight = 17.0

// endName is the name of a series, written at its end.
type endName struct {
	series *Series
	at, y  float64 // y coordinates of the end of the series and of its name
}

// endNames writes the names of series at their ends, and moves them apart if they would overlap.
func (d *drawing) endNames() {
	var list []endName
	for i := range d.figure.Series {
		s := &d.figure.Series[i]
		if !d.figure.named(s) || len(s.Buckets) == 0 {
			continue
		}
		y := d.py(s.Buckets[len(s.Buckets)-1].Mean())
		list = append(list, endName{s, y, y})
	}
	slices.SortStableFunc(list, func(a, b endName) int { return cmp.Compare(a.at, b.at) })
	spread(list, d.frame.marginTop+6, d.frame.height-d.frame.marginBottom-4)
	x := d.frame.width - d.frame.marginRight
	for _, n := range list {
		class := "join"
		if n.series.Mark == Dash {
			class = "join dashed"
		}
		d.printf(`<path class="c%d %s" d="M%.1f %.1fL%.1f %.1fL%.1f %.1f"/>`, n.series.Color, class, x+3, n.at, x+10, n.y, x+22, n.y)
		d.printf(`<text class="end" x="%.1f" y="%.1f">%s</text>`, x+27, n.y+4, html.EscapeString(n.series.Name))
	}
}

// spread moves the sorted names apart so that they do not overlap. They stay within the plot as
// far as they fit.
func spread(list []endName, top, bottom float64) {
	for i := range list {
		least := top
		if i > 0 {
			least = list[i-1].y + nameHeight
		}
		list[i].y = max(list[i].y, least)
	}
	for i := len(list) - 1; i >= 0; i-- {
		most := bottom
		if i < len(list)-1 {
			most = list[i+1].y - nameHeight
		}
		list[i].y = min(list[i].y, most)
	}
}
