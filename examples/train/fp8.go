package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/units"
)

// float32s is the name that -fp8 has for no recipe.
const float32s = "none"

// fp8Width is the width of the model where it is not given and computes in FP8: the
// blocks of every recipe divide it.
const fp8Width = 128

// recipes are the values of -fp8.
func recipes() []string { return append([]string{float32s}, fp8.Names...) }

// inFP8 sets what -fp8 comes to.
func (o *options) inFP8() error {
	o.model.FP8 = nil
	if o.fp8 == float32s {
		if o.model.FP8Attention {
			return fmt.Errorf("-fp8-attention goes with -fp8 %s", list(fp8.Names))
		}
		return nil
	}
	recipe, err := fp8.Named(o.fp8)
	if err != nil {
		return fmt.Errorf("-fp8 is %q: give %s", o.fp8, list(recipes()))
	}
	if !o.given["width"] && o.resume == "" {
		o.model.Width = fp8Width
	}
	if err := fp8.Divides(recipe, "block0.attention.qkv.input", o.model.Width); err != nil {
		return fmt.Errorf("-width: %w", err)
	}
	o.model.FP8 = recipe
	return nil
}

// roll ends the measuring of a step, adds up what its tensors met, and returns it.
func (t *trainer) roll(ctx context.Context) (fp8.Report, error) {
	report, err := t.model.RollScales(ctx, nil) // the model has the devices of every rank
	if err == nil {
		t.met.Merge(&report)
	}
	return report, err
}

// fp8 writes what the tensors of a step met into the log, a line for each role.
func (r *record) fp8(step int64, met *fp8.Report) {
	for role, c := range met.All() {
		r.log.FP8(&memlog.FP8{
			Step: step, Role: role.String(), Tensors: c.Tensors, Frozen: c.Frozen,
			NonFinite: c.NonFinite, Saturated: c.Saturated, Underflowed: c.Underflowed,
			LeastScale: float64(c.Least), GreatestScale: float64(c.Greatest),
		})
	}
}

// roleSummary is what the tensors of one role met in the steps of a run.
type roleSummary struct {
	Tensors     int     `json:"tensors"`
	Saturated   uint64  `json:"saturated"`
	Underflowed uint64  `json:"underflowed"`
	NonFinite   uint64  `json:"non_finite"`
	LeastScale  float32 `json:"least_scale"`
	MostScale   float32 `json:"most_scale"`
}

// fp8Roles returns what the run's tensors met, nil in float32.
func (t *trainer) fp8Roles() map[string]roleSummary {
	if t.opts.model.FP8 == nil {
		return nil
	}
	roles := map[string]roleSummary{}
	for role, c := range t.met.All() {
		roles[role.String()] = roleSummary{c.Tensors, c.Saturated, c.Underflowed, c.NonFinite, c.Least, c.Greatest}
	}
	return roles
}

// fp8Table shows what tensors met, by role, in the order of a layer.
func (s *summary) fp8Table() report.Table {
	table := report.Table{
		Title: "FP8: what the elements of all steps met",
		Head:  []string{"role", "tensors", "saturated", "became zero", "not finite", "least scale", "greatest scale"},
	}
	for role := fp8.Input; role <= fp8.GradInput; role++ {
		if c, ok := s.FP8Roles[role.String()]; ok {
			table.Rows = append(table.Rows, []string{
				role.String(), strconv.Itoa(c.Tensors), units.Count(int64(c.Saturated)), units.Count(int64(c.Underflowed)),
				units.Count(int64(c.NonFinite)), fmt.Sprintf("%.4g", c.LeastScale), fmt.Sprintf("%.4g", c.MostScale),
			})
		}
	}
	return table
}

// describeFP8 is the precision in a few words, "" in float32.
func (o *options) describeFP8() string {
	if o.model.FP8 == nil {
		return ""
	}
	words := []string{"FP8 " + o.model.FP8.String()}
	if o.model.FP8Attention {
		words = append(words, "with attention")
	}
	return strings.Join(words, " ")
}
