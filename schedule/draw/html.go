package draw

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/weir-ml/weir/internal/palette"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/units"
)

// MaxPageBoxes is the largest number of computations on a page. It is larger than MaxBoxes, because a
// page draws only the computations in view.
const MaxPageBoxes = 400_000

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// pageRank is a row of the page, in the form that the page's script reads.
type pageRank struct {
	Name   string `json:"name"`
	Stages string `json:"stages"`
	Peak   string `json:"peak"`
	Marked bool   `json:"marked,omitempty"`
	// Boxes holds seven numbers for each computation: start, end, kind, stage, microbatch,
	// strength in percent, and the half of a joined pair: 1 is the upper half, 2 the lower
	// half, and 0 means no pair.
	Boxes []int64 `json:"boxes"`
	// Levels holds two numbers for each level: a time, and the amount that is held from then until the
	// next level.
	Levels []float64 `json:"levels"`
}

// page is the input of the template.
type page struct {
	Title, Facts, Note, Unit string
	Scale, Makespan          int64
	Most                     float64
	Held                     string // "" if nothing is drawn below the ranks
	// Names, Words and Colors have the name, the text in the legend and the color of each kind; the color
	// of a kind that is not shown is -1.
	Names, Words []string
	Colors       []int
	Palette      template.CSS
	Ranks        []pageRank
}

// HTML writes a self-contained page with the same picture as SVG, but without Front. The reader can zoom
// and pan along the time axis, so a long step on many ranks remains readable. The page follows the reader's
// light or dark mode, and loads nothing.
//
// For a step of more than MaxPageBoxes computations or MaxEvents actions, HTML returns an error that
// wraps ErrTooLong, and for an invalid step one that wraps ErrStep.
func (s *Step) HTML(w io.Writer) error {
	p, err := s.picture(MaxPageBoxes)
	if err != nil {
		return err
	}
	view := page{
		Title: s.Plan.Name, Facts: p.facts(), Unit: p.unit(true), Scale: max(p.step.Scale, 1), Makespan: p.clocks.length(), Most: p.most,
		Held: "microbatches in flight",
	}
	if p.bytes {
		view.Held = "bytes"
	}
	for rank := range s.Events {
		row := p.pageRank(rank)
		for _, l := range p.curves[rank].levels {
			row.Levels = append(row.Levels, float64(l.from-p.clocks.begin), l.live)
		}
		view.Ranks = append(view.Ranks, row)
		for _, lane := range p.rows {
			view.Ranks = append(view.Ranks, p.pageLane(rank, lane), p.pageLane(rank, lane+1))
		}
	}
	return view.write(w)
}

// Labels are the texts of a page that compares two steps.
type Labels struct {
	Title, Note string    // Note stands out below the title, unless it is ""
	Steps       [2]string // names of the two steps, which label their ranks
	Marked      int       // the rank that the note is about, or -1
}

// Compare writes a page like that of HTML with two steps of the same ranks, such as a measured and a
// planned one. Each rank of the first step is above the same rank of the second, and the two steps are
// aligned at their starts. The steps must have the same number of ranks, unit and scale, or the error wraps
// ErrStep. Each may have at most half of MaxPageBoxes computations, or the error wraps ErrTooLong.
func Compare(w io.Writer, labels Labels, first, second *Step) error {
	view := page{Title: labels.Title, Note: labels.Note}
	var rows [2][]pageRank
	for i, s := range []*Step{first, second} {
		p, err := s.picture(MaxPageBoxes / 2)
		if err != nil {
			return err
		}
		if len(s.Events) != len(first.Events) || s.Unit != first.Unit || max(s.Scale, 1) != max(first.Scale, 1) {
			return fmt.Errorf("%w: steps of %d and %d ranks, in %q and %q, cannot be compared", ErrStep, len(first.Events), len(s.Events), first.Unit, s.Unit)
		}
		for rank := range s.Events {
			rows[i] = append(rows[i], p.pageRank(rank))
		}
		view.Makespan = max(view.Makespan, p.clocks.length())
		if i == 0 {
			view.Unit, view.Scale = p.unit(true), max(p.step.Scale, 1)
		} else {
			view.Facts += " · "
		}
		view.Facts += fmt.Sprintf("%s: makespan %s, bubble %s", labels.Steps[i], p.time(p.clocks.makespan()), units.Percent(p.clocks.bubble(p.clocks.makespan()), 1))
	}
	for rank := range rows[0] {
		rows[0][rank].Name, rows[1][rank].Name = fmt.Sprintf("%d %s", rank, labels.Steps[0]), fmt.Sprintf("%d %s", rank, labels.Steps[1])
		rows[0][rank].Marked = rank == labels.Marked
		view.Ranks = append(view.Ranks, rows[0][rank], rows[1][rank])
	}
	return view.write(w)
}

// pageRank returns the row of a rank without its levels.
func (p *picture) pageRank(rank int) pageRank {
	row := pageRank{Boxes: []int64{}, Levels: []float64{}}
	row.Name, row.Stages, _ = p.step.row(rank)
	if p.step.Rows == nil {
		row.Peak = p.held(p.curves[rank].peak)
	}
	for _, b := range p.boxes[rank] {
		row.add(b, p.clocks.begin)
	}
	return row
}

// pageLane returns the row of a rank's copies in one lane.
func (p *picture) pageLane(rank, lane int) pageRank {
	row := pageRank{Name: fmt.Sprintf("%d %s", rank, lanes[lane].name), Boxes: []int64{}, Levels: []float64{}}
	for _, b := range p.step.copies(rank, lane) {
		b.half = 0
		row.add(b, p.clocks.begin)
	}
	return row
}

// add adds a box, with times relative to first.
func (r *pageRank) add(b box, first int64) {
	a := b.Action
	r.Boxes = append(r.Boxes, b.Start-first, b.End-first, int64(a.Kind()), int64(a.Stage()), int64(a.Microbatch()), int64(100*b.strength), int64(b.half))
}

// write adds the kinds to the page, and writes it.
func (v *page) write(w io.Writer) error {
	v.Palette = template.CSS(palette.Variables())
	v.Words, v.Colors = make([]string, schedule.NumKinds), slices.Repeat([]int{-1}, schedule.NumKinds)
	for kind := range schedule.Kind(schedule.NumKinds) {
		v.Names = append(v.Names, kind.String())
	}
	for _, k := range kinds {
		color, _ := palette.Kind(k.kind)
		v.Words[k.kind], v.Colors[k.kind] = k.word, int(color)
	}
	if err := pageTemplate.Execute(w, v); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}
