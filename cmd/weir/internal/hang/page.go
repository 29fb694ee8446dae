package hang

import (
	"bytes"
	"errors"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/palette"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
)

// ErrNoPicture is returned if the ranks of a report have no position in a plan.
var ErrNoPicture = errors.New("a picture shows where the ranks are in a plan: give a plan that the dumps fit")

// SVG draws the schedule of the first pipeline that has a rank to blame, or of the first pipeline
// if no rank is to blame, with a line that marks how far each rank got.
func (r *Report) SVG(w io.Writer) error {
	pictures, err := r.pictures(1)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, string(pictures[0].SVG))
	return err
}

// picture is the schedule of a pipeline.
type picture struct {
	Number int
	Ranks  string
	SVG    template.HTML
}

// pictures draws the pipelines with ranks to blame, or all pipelines if no rank is, but no more
// than most. All computations are drawn with the same duration, except that B takes twice as long.
func (r *Report) pictures(most int) (list []picture, err error) {
	if r.Fit == nil || !r.Fit.Fits {
		return nil, ErrNoPicture
	}
	plan := r.Fit.plan
	step, err := draw.Simulate(plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}, plan.Capacity)
	if err != nil {
		return nil, err
	}
	blamed := func(rank int) bool { return slices.Contains(r.Blamed, rank) }
	found := slices.ContainsFunc(r.Fit.Pipelines, func(ranks []int) bool { return slices.ContainsFunc(ranks, blamed) })
	for number, ranks := range r.Fit.Pipelines {
		if len(list) == most || found && !slices.ContainsFunc(ranks, blamed) {
			continue
		}
		step.Front = nil
		for place, rank := range ranks {
			p := r.Fit.Positions[rank]
			position := int64(0)
			for a := range plan.All(place) {
				if a.WithDrop(0).WithJoin(false) == p.Before[0] {
					break
				}
				position++
			}
			step.Front = append(step.Front, draw.Front{
				Time: step.TimeAt(place, position), Blamed: blamed(rank), Name: units.Ranks([]int{rank}), Explain: units.Ranks([]int{rank}) + ", " + p.String(),
			})
		}
		var svg bytes.Buffer
		if err := step.SVG(&svg); err != nil {
			return nil, err
		}
		list = append(list, picture{number, units.Ranks(ranks), template.HTML(svg.String())}) // draw escapes text that comes from files
	}
	return list, nil
}

// maxPictures is the maximum number of pipelines on a page.
const maxPictures = 8

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>weir hang</title>
<style>
{{.Palette}}
:root{color-scheme:light dark}
body{background:var(--card);color:var(--ink);font:15px/1.5 system-ui,sans-serif;margin:2em;max-width:100em}
pre{font:13px/1.45 ui-monospace,monospace;overflow-x:auto}
figure{margin:1.5em 0;overflow-x:auto}
</style>
<h1>Why it hangs</h1>
<p style="white-space:pre-line"><b>{{.Verdict}}</b></p>
<p>Right of the red line nothing has run. A large dot is a rank that is to blame; a dot names the rank and its place under the pointer. Times are those of the plan, with computations of equal length.</p>
{{range .Pictures}}<figure><figcaption>pipeline {{.Number}}: {{.Ranks}}</figcaption>
{{.SVG}}</figure>
{{end}}<pre>{{.Text}}</pre>
</html>
`))

// HTML writes a page with the report and pictures of at most maxPictures pipelines: those with ranks to blame, or
// any if no rank is to blame.
func (r *Report) HTML(w io.Writer) error {
	pictures, err := r.pictures(maxPictures)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		return err
	}
	return page.Execute(w, map[string]any{"Palette": template.CSS(palette.Variables()), "Verdict": r.Summary(), "Pictures": pictures, "Text": strings.TrimLeft(strings.TrimPrefix(text.String(), r.Summary()), "\n")})
}
