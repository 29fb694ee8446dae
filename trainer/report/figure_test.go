package report_test

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/report"
)

// flat is a series of two equal points.
func flat(name string, mark report.Mark, y float64) report.Series {
	s := report.Series{Name: name, Mark: mark}
	for x := range 2 {
		s.Buckets = append(s.Buckets, report.Bucket{First: float64(x), Last: float64(x), Min: y, Max: y, Sum: y, Count: 1})
	}
	return s
}

// moving is a band that varies within the range of the others, so that there is a plot.
func moving() report.Series {
	s := report.Series{Mark: report.Band}
	for x := range 3 {
		s.Buckets = append(s.Buckets, report.Bucket{First: float64(x) / 2, Last: float64(x) / 2, Max: 1, Sum: 1, Count: 1})
	}
	return s
}

// Constant series and series of two points become sentences.
func TestSentences(t *testing.T) {
	size := report.Axis{Unit: report.Bytes}
	two := report.Series{Name: "live", Buckets: []report.Bucket{report.Point(0, 1024), report.Point(1, 2048)}}
	for want, f := range map[string]report.Figure{
		"Nothing changes: live 5 B; peak 7 B.":                    {Y: size, Series: []report.Series{flat("live", report.Line, 5), flat("peak", report.Line, 7), flat("", report.Band, 5)}},
		"live 1.0 KiB (1,024 bytes), then 2.0 KiB (2,048 bytes).": {Y: size, Series: []report.Series{two}},
		"loss 3.": {Series: []report.Series{{Name: "loss", Buckets: []report.Bucket{report.Point(0, 3)}}}},
	} {
		text := written(t, report.Page{Figures: []report.Figure{f}})
		require.Contains(t, text, want)
		require.NotContains(t, text, "<svg ")
	}
	dots := two
	dots.Mark = report.Dots
	text := written(t, report.Page{Figures: []report.Figure{{Series: []report.Series{dots, moving()}}}})
	require.Contains(t, text, "<circle")
	require.NotContains(t, text, ` thin"`)
}

// Links to the numbers are next to the title.
func TestFiles(t *testing.T) {
	text := written(t, report.Page{Files: []string{"memory.jsonl", "a b.csv"}})
	require.Contains(t, text, `<a href="memory.jsonl">memory.jsonl</a>`)
	require.Contains(t, text, `<a href="a%20b.csv">a b.csv</a>`)
}

func written(t *testing.T, p report.Page) string {
	var out bytes.Buffer
	require.NoError(t, p.Write(&out))
	return out.String()
}

// Areas are stacked: two of height 1 fill an axis that ends at 2.
func TestAreasAreStacked(t *testing.T) {
	text := written(t, report.Page{Figures: []report.Figure{{Series: []report.Series{flat("a", report.Area, 1), flat("b", report.Area, 1), moving()}}}})
	text, _, _ = strings.Cut(text, "</svg>") // for wide screens
	tops := regexp.MustCompile(`area" d="M86\.0 ([0-9.]+)L942\.0 ([0-9.]+)L942\.0 ([0-9.]+)`).FindAllStringSubmatch(text, -1)
	require.Len(t, tops, 2)
	middle, top, bottom := tops[0][1], "14.0", "274.0"
	require.Equal(t, []string{"144.0", "144.0", bottom}, tops[0][1:])
	require.Equal(t, []string{top, top, middle}, tops[1][1:])
}

// Names at the ends of lines do not overlap, and are not in the legend.
func TestNamesBesideLines(t *testing.T) {
	f := report.Figure{Direct: true, Y: report.Axis{FromZero: true}}
	for _, name := range []string{"one", "two", "three", "four"} {
		f.Series = append(f.Series, flat(name, report.Line, 5))
	}
	f.Series = append(f.Series, flat("planned", report.Dash, 5), flat("", report.Band, 5), flat("bars", report.Band, 1))
	f.Series = append(f.Series, moving())
	text := written(t, report.Page{Figures: []report.Figure{f}})
	names := regexp.MustCompile(`<text class="end" x="[0-9.]+" y="([0-9.]+)">(\w+)<`).FindAllStringSubmatch(text, -1)
	require.Len(t, names, 5)
	before := 0.0
	for _, name := range names {
		y, err := strconv.ParseFloat(name[1], 64)
		require.NoError(t, err)
		require.GreaterOrEqual(t, y, before+17, name[2])
		before = y
	}
	require.Equal(t, 1, strings.Count(text, "<li>"), "what has no line keeps its place in the legend, what has no name has none")
}

func TestNotes(t *testing.T) {
	f := report.Figure{Series: []report.Series{flat("a", report.Line, 1), moving()}, Notes: []report.Note{{X: 0, Text: "grows <here>"}, {X: 7, Text: "beyond"}}}
	text := written(t, report.Page{Figures: []report.Figure{f}})
	require.Contains(t, text, `<line class="note" x1="86.0" x2="86.0"`)
	require.Contains(t, text, `text-anchor="start">grows &lt;here&gt;</text>`)
	require.Contains(t, text, `text-anchor="end">beyond</text>`)
}

// A tick spans its own bar, and a few bars are not wide.
func TestTicks(t *testing.T) {
	one := flat("peak", report.Ticks, 3)
	one.Buckets = one.Buckets[1:]
	f := report.Figure{X: report.Axis{Names: []string{"0", "1"}}, Series: []report.Series{flat("live", report.Bars, 2), one}}
	text := written(t, report.Page{Figures: []report.Figure{f}})
	bars := regexp.MustCompile(`fill" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"`).FindAllStringSubmatch(text, -1)
	require.Equal(t, "264.0", bars[0][1])
	require.Equal(t, "72.0", bars[0][2])
	require.Contains(t, text, `<line class="c0 line" x1="688.0" x2="768.0"`)
	require.Equal(t, 1, strings.Count(text, "\npeak: 3"), "the tip of one bar")
}

func TestPanelsAndShares(t *testing.T) {
	small := report.Figure{Title: "rank 0", Caption: "peak", Y: report.Axis{FromZero: true, Reach: 100}, Series: []report.Series{flat("a", report.Line, 1)}}
	text := written(t, report.Page{
		Panels: []report.Panels{{Title: "All", Caption: "one by one", Figures: []report.Figure{small, {Title: "empty"}}}},
		Tables: []report.Table{{Title: "t", Rows: [][]string{{"a"}, {"b"}}, Shares: []float64{0.25, 7}}},
	})
	require.Equal(t, 1, strings.Count(text, "<svg "))
	require.NotContains(t, text, `class="hit"`)
	require.Contains(t, text, ">100</text>")
	require.Contains(t, text, `style="width:25%"`)
	require.Contains(t, text, `style="width:100%"`)
}

func TestTimeline(t *testing.T) {
	page := report.Page{Timeline: &report.Timeline{Title: "By the clock", Rows: []report.TimelineRow{
		{Name: "rank 0", Spans: []report.Span{{Start: 1, End: 1.5, Label: "0F0"}, {Start: 2, End: 2, Label: "<b>"}}},
		{Name: "rank 1"},
	}}}
	var b strings.Builder
	require.NoError(t, page.Write(&b))
	require.Equal(t, 1, strings.Count(b.String(), `<rect class="span"`))
	require.Equal(t, 1, strings.Count(b.String(), `<rect class="fill"`), "the span that takes no time has no outline")
	require.Contains(t, b.String(), "0F0, 500.0 ms", "who points at it reads how long it was")
	require.Contains(t, b.String(), "&lt;b&gt;")
	require.NotContains(t, b.String(), "NaN")
	page.Timeline.Rows = nil
	b.Reset()
	require.NoError(t, page.Write(&b))
	require.NotContains(t, b.String(), "By the clock", "nothing ran")
}

// An alert comes before the facts; without an alert, or for a table without rows, the page shows
// nothing.
func TestAlertAndEmptyTables(t *testing.T) {
	p := report.Page{Alert: report.Alert{Title: "It failed", Text: "a <cause>"}, Facts: []report.Fact{{Label: "peak"}}, Tables: []report.Table{
		{Title: "Nothing here", Head: []string{"a"}}, {Title: "Nor here", Folded: true}, {Title: "Owners", Head: []string{"bytes", "owner"}, Rows: [][]string{{"1", "me"}}, Lead: 1},
	}}
	text := written(t, p)
	require.Contains(t, text, `<section class="alert" role="alert"><h2>It failed</h2><p>a &lt;cause&gt;</p>`)
	require.Less(t, strings.Index(text, "It failed"), strings.Index(text, "<span>peak"))
	require.NotContains(t, text, "Nothing here")
	require.NotContains(t, text, "Nor here")
	require.Contains(t, text, `<th>bytes</th><th class="lead">owner</th>`)
	require.Contains(t, text, `<td>1</td><td class="lead">me</td>`)
	p.Alert = report.Alert{}
	require.NotContains(t, written(t, p), `role="alert"`)
}

// Names under bars and under groups of bars do not overlap.
func TestNamesDoNotOverlap(t *testing.T) {
	for _, bars := range []int{3, 48, 200} {
		f := report.Figure{Series: []report.Series{{Mark: report.Bars}}}
		for i := range bars {
			f.Series[0].Buckets = append(f.Series[0].Buckets, report.Point(float64(i), 1))
			f.X.Names = append(f.X.Names, fmt.Sprint("W", 10+i))
			f.X.Groups = append(f.X.Groups, fmt.Sprint("microbatch ", 10_000+i/4))
		}
		text := written(t, report.Page{Figures: []report.Figure{f}})
		for letter, found := range map[float64]*regexp.Regexp{
			7:   regexp.MustCompile(`class="bar" x="([0-9.]+)" y="286.0" text-anchor="middle">(W\d+)<`),
			6.5: regexp.MustCompile(`class="tick" x="([0-9.]+)" y="303.0" text-anchor="middle">(microbatch \d+)<`),
		} {
			end := math.Inf(-1)
			for _, name := range found.FindAllStringSubmatch(text, -1) {
				at, err := strconv.ParseFloat(name[1], 64)
				require.NoError(t, err)
				half := letter * float64(len(name[2])) / 2
				require.LessOrEqual(t, end, at-half, name[2])
				end = at + half
			}
			if letter == 7 {
				require.Positive(t, end, "there are names")
			}
		}
	}
}
