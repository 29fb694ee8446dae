package memreport

import (
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
	"github.com/weir-ml/weir/trainer/terminal"
)

// FP8 summarizes the tensors of one role over all steps of a log.
type FP8 struct {
	Role    string `json:"role"`
	Steps   int64  `json:"steps"`
	Tensors int    `json:"tensors"` // the maximum over steps
	// FrozenIn counts the steps with an infinity or NaN.
	FrozenIn      int64   `json:"steps_with_non_finite"`
	NonFinite     uint64  `json:"non_finite"`
	Saturated     uint64  `json:"saturated"`
	Underflowed   uint64  `json:"underflowed"`
	LeastScale    float64 `json:"least_scale"`
	GreatestScale float64 `json:"greatest_scale"`
}

// maxRoles is the maximum number of roles.
const maxRoles = 16

// addFP8 adds a step's record of a role.
func (l *Log) addFP8(f *memlog.FP8) {
	name := shortened(f.Role)
	at := slices.IndexFunc(l.roles, func(r FP8) bool { return r.Role == name })
	switch {
	case at < 0 && len(l.roles) < maxRoles:
		at = len(l.roles)
		l.roles = append(l.roles, FP8{Role: name})
	case at < 0:
		at = maxRoles - 1
		l.roles[at].Role = otherNames
	}
	r := &l.roles[at]
	r.Steps++
	r.Tensors = max(r.Tensors, f.Tensors)
	if f.Frozen > 0 {
		r.FrozenIn++
	}
	r.NonFinite += f.NonFinite
	r.Saturated += f.Saturated
	r.Underflowed += f.Underflowed
	if f.LeastScale > 0 && (r.LeastScale == 0 || f.LeastScale < r.LeastScale) {
		r.LeastScale = f.LeastScale
	}
	if f.GreatestScale > r.GreatestScale && f.GreatestScale <= math.MaxFloat64 { // the file may contain any number
		r.GreatestScale = f.GreatestScale
	}
}

// elements formats a number of elements.
func elements(n uint64) string {
	if n > 1<<62 {
		return fmt.Sprint(n)
	}
	return units.Count(int64(n))
}

// fp8Table returns a table with a row for each role of FP8 tensors.
func (s *Summary) fp8Table() report.Table {
	t := report.Table{
		Title: "Elements in FP8, by role",
		Head:  []string{"role", "tensors", "saturated", "became zero", "not finite", "in steps", "scales"},
	}
	for _, f := range s.FP8 {
		t.Rows = append(t.Rows, []string{
			terminal.Quote(f.Role), units.Count(int64(f.Tensors)), elements(f.Saturated), elements(f.Underflowed), elements(f.NonFinite),
			fmt.Sprintf("%s of %s", units.Count(f.FrozenIn), units.Count(f.Steps)), fmt.Sprintf("%.4g to %.4g", f.LeastScale, f.GreatestScale),
		})
	}
	return t
}
