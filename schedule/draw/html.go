package draw

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/weir-ml/weir/schedule"
)

// MaxPageBoxes is how many computations a page may have: it draws those that are seen.
const MaxPageBoxes = 400_000

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// pageRank is a rank as the page's script reads it.
type pageRank struct {
	Stages string `json:"stages"`
	Peak   string `json:"peak"`
	// Boxes have seven numbers for each computation: start, end, kind, stage, microbatch,
	// strength in percent, and 0 or, of a joined pair, 1 for the upper and 2 for the lower half.
	Boxes []int64 `json:"boxes"`
	// Levels have two numbers for each: a time, and what is held from then on.
	Levels []float64 `json:"levels"`
}

// HTML writes a self-contained page with the same picture as SVG, which zooms and pans
// over the time axis, so that a long step on many ranks can be read. Its colours are light
// or dark as the reader has it, and it loads nothing.
//
// A step of more than MaxPageBoxes computations is an error that wraps ErrTooLong.
func (s *Step) HTML(w io.Writer) error {
	p, err := s.picture(MaxPageBoxes)
	if err != nil {
		return err
	}
	view := struct {
		Title, Facts, Unit  string
		Scale, Makespan     int64
		Most                float64
		Held                string
		Kinds, Names, Words []string
		Ranks               []pageRank
	}{
		Title: s.Plan.Name, Facts: p.facts(), Unit: p.unit(true), Scale: max(s.Scale, 1), Makespan: p.clocks.makespan(), Most: p.most,
		Held: "microbatches in flight",
	}
	if p.bytes {
		view.Held = "bytes"
	}
	for kind := range schedule.Kind(schedule.NumKinds) {
		view.Names = append(view.Names, kind.String())
	}
	for _, k := range kinds {
		view.Kinds, view.Words = append(view.Kinds, k.kind.String()), append(view.Words, k.word)
	}
	for rank := range s.Events {
		one := pageRank{Stages: stageList(s.Plan.Placement.On(rank)), Peak: p.held(p.curves[rank].peak), Boxes: []int64{}, Levels: []float64{}}
		for _, b := range s.boxes(rank) {
			a := b.Action
			one.Boxes = append(one.Boxes, b.Start-p.clocks.first, b.End-p.clocks.first, int64(a.Kind()), int64(a.Stage()), int64(a.Microbatch()),
				int64(100*b.strength), int64(b.half))
		}
		for _, l := range p.curves[rank].levels {
			one.Levels = append(one.Levels, float64(l.from-p.clocks.first), l.live)
		}
		view.Ranks = append(view.Ranks, one)
	}
	if err := pageTemplate.Execute(w, view); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}
