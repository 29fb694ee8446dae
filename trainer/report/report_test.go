package report_test

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/report"
)

// An envelope preserves all extremes, sums and points, for any number of points.
func TestEnvelope(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 1000, 12_345} {
		e := report.NewEnvelope(10)
		random := rand.New(rand.NewPCG(7, uint64(n)))
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(random.IntN(1000))
			e.Add(float64(i), values[i])
		}
		next := 0
		for _, b := range e.Buckets() {
			require.EqualValues(t, next, b.First)
			covered := values[next : next+b.Count]
			next += b.Count
			require.EqualValues(t, next-1, b.Last)
			low, high, sum := math.Inf(1), math.Inf(-1), 0.0
			for _, v := range covered {
				low, high, sum = min(low, v), max(high, v), sum+v
			}
			require.Equal(t, []float64{low, high, sum}, []float64{b.Min, b.Max, b.Sum})
			require.LessOrEqual(t, b.Count, e.Stride())
		}
		require.Equal(t, n, next)
		require.LessOrEqual(t, len(e.Buckets()), 10)
	}
}

func TestEnvelopeAllocatesNothing(t *testing.T) {
	e := report.NewEnvelope(64)
	x := 0.0
	require.Zero(t, testing.AllocsPerRun(10_000, func() { e.Add(x, x); x++ }))
}

func TestEnvelopeLeavesOutWhatIsNotFinite(t *testing.T) {
	e := report.NewEnvelope(4)
	for _, y := range []float64{math.NaN(), math.Inf(1), 3} {
		e.Add(0, y)
	}
	require.Equal(t, []report.Bucket{{Min: 3, Max: 3, Sum: 3, Count: 1}}, e.Buckets())
}

// page is a page with every possible element, over n points.
func page(n int) *report.Page {
	e, dots := report.NewEnvelope(240), report.NewEnvelope(240)
	for i := range n {
		e.Add(float64(i), 1<<20+float64(i%7)*4096)
		if i%100 == 0 {
			dots.Add(float64(i), 1<<19)
		}
	}
	bars := func(y float64) []report.Bucket {
		return []report.Bucket{{Min: y, Max: y, Sum: y, Count: 1}, {First: 1, Last: 1, Min: 2 * y, Max: 2 * y, Sum: 2 * y, Count: 1}}
	}
	return &report.Page{
		Title: "<b>Title</b>", Subtitle: "sub & title", Footer: "footer",
		Facts: []report.Fact{{Label: "growth", Value: "0 bytes", Note: "note", Good: true}},
		Figures: []report.Figure{
			{
				Title: "memory \"quoted\"", Caption: "caption",
				X: report.Axis{Label: "microbatch", Unit: report.Count}, Y: report.Axis{Label: "memory", Unit: report.Bytes, FromZero: true},
				Series: []report.Series{
					{Name: "peak", Mark: report.Band, Color: report.Orange, Buckets: e.Buckets()},
					{Name: "live <", Mark: report.Line, Buckets: e.Buckets()},
					{Name: "dots", Mark: report.Dots, Buckets: dots.Buckets()},
					{Name: "level", Mark: report.Level, Buckets: bars(900_000)},
				},
			},
			{
				Title: "bars", X: report.Axis{Names: []string{"F0", "B0"}, Groups: []string{"microbatch 0", "microbatch 0"}},
				Series: []report.Series{{Name: "saved", Mark: report.Bars, Buckets: bars(3)}, {Name: "entry", Mark: report.Bars, Buckets: bars(1)}},
			},
			{Title: "nothing to draw"},
		},
		Tables: []report.Table{{Title: "table", Head: []string{"a"}, Rows: [][]string{{"1"}}, Folded: true}, {Title: "open", Rows: [][]string{{"2"}}}},
	}
}

func TestPage(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, page(100_000).Write(&out))
	text := out.String()
	require.Less(t, len(text), 200_000, "the page does not grow with the run")
	for _, network := range []string{"http:", "https:", "//", "@import", "url(", "src="} {
		require.NotContains(t, text, network)
	}
	require.Contains(t, text, "&lt;b&gt;Title")
	require.Contains(t, text, "prefers-color-scheme")
	require.Equal(t, 2, strings.Count(text, `<svg class="wide"`))
	require.Equal(t, 2, strings.Count(text, `<svg class="narrow"`))
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "Inf")
	for rest := text; ; { // every drawing is well-formed
		_, after, found := strings.Cut(rest, "<svg ")
		if !found {
			break
		}
		svg, after, found := strings.Cut(after, "</svg>")
		require.True(t, found)
		decoder := xml.NewDecoder(strings.NewReader("<svg " + svg + "</svg>"))
		for {
			_, err := decoder.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
		}
		rest = after
	}
}

// A run without steps, and a run of a single point, also have a page.
func TestPageOfLittle(t *testing.T) {
	for _, n := range []int{0, 1} {
		var out bytes.Buffer
		require.NoError(t, page(n).Write(&out))
		require.NotContains(t, out.String(), "NaN")
		require.NotContains(t, out.String(), "Inf")
	}
	var out bytes.Buffer
	require.NoError(t, (&report.Page{}).Write(&out))
}

func TestPageSaysWhatCannotBeWritten(t *testing.T) {
	require.ErrorIs(t, page(10).Write(failing{}), io.ErrShortWrite)
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
