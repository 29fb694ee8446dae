package hang

import (
	"bytes"
	"errors"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
)

// ErrNoPicture is returned for a report whose ranks have no place in a plan.
var ErrNoPicture = errors.New("a picture shows where the ranks are in a plan: give a plan that the dumps fit")

// SVG draws the schedule with the front line of the hang, in the first pipeline that has a rank
// which is to blame.
func (r *Report) SVG(w io.Writer) error {
	if r.Fit == nil || !r.Fit.Fits {
		return ErrNoPicture
	}
	return r.draw(w, r.worst()[0])
}

// worst returns the pipelines in which ranks are to blame, all of them if there are none.
func (r *Report) worst() (list []int) {
	for number, ranks := range r.Fit.Pipelines {
		if slices.ContainsFunc(ranks, func(rank int) bool { return slices.Contains(r.Blamed, rank) }) {
			list = append(list, number)
		}
	}
	if len(list) == 0 {
		for number := range r.Fit.Pipelines {
			list = append(list, number)
		}
	}
	return list
}

// draw draws a pipeline. All computations take equally long, B twice that.
func (r *Report) draw(w io.Writer, pipeline int) error {
	plan := r.Fit.plan
	step, err := draw.Simulate(plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}, plan.Capacity)
	if err != nil {
		return err
	}
	for place, rank := range r.Fit.Pipelines[pipeline] {
		p := r.Fit.places[rank]
		position, at := int64(0), p.Before[0]
		for a := range plan.All(place) {
			if a.WithDrop(0).WithJoin(false) == at {
				break
			}
			position++
		}
		step.Front = append(step.Front, draw.Front{
			Time: step.FrontAt(place, position), Blamed: slices.Contains(r.Blamed, rank), Explain: ranksText([]int{rank}) + ", " + p.String(),
		})
	}
	return step.SVG(w)
}

// mostPictures is how many pipelines a page shows.
const mostPictures = 8

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>weir hang</title>
<style>
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2em;max-width:100em}
pre{font:13px/1.45 ui-monospace,monospace;overflow-x:auto}
figure{margin:1.5em 0;overflow-x:auto}
</style>
<h1>Why it hangs</h1>
{{range .Verdict}}<p><b>{{.}}</b></p>
{{end}}<p>Right of the red line nothing has run. A large dot is a rank that is to blame; a dot names the rank and its place under the pointer. Times are those of the plan, with computations of equal length.</p>
{{range .Pictures}}<figure><figcaption>pipeline {{.Number}}: {{.Ranks}}</figcaption>
{{.SVG}}</figure>
{{end}}<pre>{{.Text}}</pre>
</html>
`))

// HTML writes a page with the pictures of the pipelines in which ranks are to blame, and the report.
func (r *Report) HTML(w io.Writer) error {
	if r.Fit == nil || !r.Fit.Fits {
		return ErrNoPicture
	}
	type picture struct {
		Number int
		Ranks  string
		SVG    template.HTML
	}
	var view struct {
		Verdict  []string
		Pictures []picture
		Text     string
	}
	view.Verdict = strings.Split(r.Verdict(), "\n")
	for _, number := range r.worst()[:min(len(r.worst()), mostPictures)] {
		var svg bytes.Buffer
		if err := r.draw(&svg, number); err != nil {
			return err
		}
		view.Pictures = append(view.Pictures, picture{number, ranksText(r.Fit.Pipelines[number]), template.HTML(svg.String())}) // draw escapes what is not its own
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		return err
	}
	view.Text = text.String()
	return page.Execute(w, view)
}
