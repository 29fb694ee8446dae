package loss_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
)

func TestValidate(t *testing.T) {
	ce := loss.Def{Name: "ce", Reduction: loss.Mean, Objective: true}
	for _, c := range []struct {
		name   string
		defs   []loss.Def
		faults []string // all faults, one per line
	}{
		{"nothing", nil, nil},
		{"objective alone", []loss.Def{ce}, nil},
		{"objective as a sum", []loss.Def{{Name: "ce", Reduction: loss.Sum, Objective: true}}, nil},
		{"objective with a coefficient", []loss.Def{{Name: "ce", Objective: true, Coefficient: 1}}, []string{`def 0 ("ce"): coefficient 1 on the objective, to which the other coefficients are relative: leave it out`}},
		{"metrics only", []loss.Def{{Name: "a", Reduction: loss.Max, Metric: true}, {Name: "b", Metric: true}}, nil},
		{"neither trained nor a metric", []loss.Def{ce, {Name: "aux"}}, []string{`def 1 ("aux"): it is neither the objective nor a metric and has no coefficient: set one of Objective, Metric and Coefficient`}},
		{"a metric that is trained", []loss.Def{ce, {Name: "aux", Metric: true, Coefficient: 0.1}}, []string{`def 1 ("aux"): it is a metric, according to this def or to a stage, and is trained: it can be only one of the two`}},
		{"an objective that is a metric", []loss.Def{{Name: "ce", Objective: true, Metric: true}}, []string{`def 0 ("ce"): it is a metric, according to this def or to a stage, and is trained: it can be only one of the two`}},
		{"trained term, negative", []loss.Def{ce, {Name: "entropy", Reduction: loss.Mean, Coefficient: -0.01}}, nil},
		{"empty name", []loss.Def{{Metric: true}}, []string{`def 0 (""): the name is empty`}},
		{"names with verbs", []loss.Def{{Name: "%d", Metric: true}, {Name: "%d", Metric: true}}, []string{`def 1 ("%d"): the name is taken by def 0`}},
		{"trained without an objective", []loss.Def{{Name: "aux", Coefficient: 0.1}}, []string{`def 0 ("aux"): a coefficient without an objective to which it is relative: set one`}},
		{"objective as a maximum", []loss.Def{{Name: "m", Reduction: loss.Max, Objective: true}}, []string{`def 0 ("m"): the objective is a max, it must be a mean or a sum`}},
		{"everything at once", []loss.Def{
			ce,
			{Name: "ce", Objective: true, Coefficient: 0.5},
			{Name: "", Reduction: loss.Min, Coefficient: 2},
			{Name: "x", Reduction: 9, Coefficient: math.Inf(-1)},
			{Name: "y", Coefficient: math.NaN()},
		}, []string{
			`def 1 ("ce"): the name is taken by def 0`,
			`def 1 ("ce"): coefficient 0.5 on the objective, to which the other coefficients are relative: leave it out`,
			`def 1 ("ce"): a second objective, def 0 is the first`,
			`def 2 (""): the name is empty`,
			`def 2 (""): coefficient 2 on a min, which cannot be trained`,
			`def 3 ("x"): unknown reduction 9`,
			`def 3 ("x"): coefficient -Inf is not finite`,
			`def 4 ("y"): coefficient NaN is not finite`,
		}},
		{"too many", make([]loss.Def, loss.MaxDefs+1), []string{"16385 losses, at most 16384 are allowed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := loss.Validate(c.defs)
			_, fromNew := loss.NewLedger(c.defs)
			if c.faults == nil {
				require.NoError(t, err)
				require.NoError(t, fromNew)
				return
			}
			require.EqualError(t, err, "loss: "+strings.Join(c.faults, "\nloss: "))
			require.EqualError(t, fromNew, err.Error())
		})
	}
}

func TestStrings(t *testing.T) {
	require.Equal(t, loss.Mean, loss.Def{}.Reduction)
	require.Equal(t, "mean sum min max Reduction(4)", strings.Join([]string{
		loss.Mean.String(), loss.Sum.String(), loss.Min.String(), loss.Max.String(), loss.Reduction(4).String()}, " "))
	require.Equal(t, "stepped empty skipped out-of-range Outcome(4)", strings.Join([]string{
		loss.Stepped.String(), loss.Empty.String(), loss.Skipped.String(), loss.OutOfRange.String(), loss.Outcome(4).String()}, " "))
}
