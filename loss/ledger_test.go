package loss_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
)

// The losses of most tests, by index.
const (
	ce = iota
	aux
	norm
	peak
	low
)

func defs() []loss.Def {
	return []loss.Def{
		{Name: "ce", Reduction: loss.Mean, Objective: true},
		{Name: "aux", Reduction: loss.Sum, Coefficient: 0.01},
		{Name: "norm", Metric: true},
		{Name: "peak", Reduction: loss.Max, Metric: true},
		{Name: "low", Reduction: loss.Min, Metric: true},
	}
}

func ledger(t testing.TB, set []loss.Def) *loss.Ledger {
	l, err := loss.NewLedger(set)
	require.NoError(t, err)
	return l
}

// rec is one call of Record.
type rec struct {
	def, mb     int
	sum, weight float64
}

func record(t testing.TB, l *loss.Ledger, recs ...rec) {
	t.Helper()
	for _, r := range recs {
		require.NoError(t, l.Record(r.def, r.mb, r.sum, r.weight))
	}
}

func TestReduce(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	absent := func(name string) loss.Value { return loss.Value{Name: name} }
	for _, c := range []struct {
		name string
		recs []rec
		want loss.Totals // with Objective 0
	}{
		{"nothing recorded", nil, loss.Totals{
			Values:  []loss.Value{absent("ce"), absent("aux"), absent("norm"), absent("peak"), absent("low")},
			Outcome: loss.Empty, FirstNonFinite: -1,
		}},
		{"all of them", []rec{{ce, 0, 6, 2}, {ce, 1, 3, 1}, {aux, 0, -5, 0}, {norm, 1, 8, 4}, {peak, 0, -3, 1}, {peak, 1, -7, 1}, {low, 0, 3, 1}, {low, 1, 7, 2}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Value: 3, Sum: 9, Weight: 3, Count: 2, Present: true},
				{Name: "aux", Value: -5, Sum: -5, Count: 1, Present: true},
				{Name: "norm", Value: 2, Sum: 8, Weight: 4, Count: 1, Present: true},
				{Name: "peak", Value: -3, Weight: 2, Count: 2, Present: true},
				{Name: "low", Value: 3, Weight: 3, Count: 2, Present: true},
			},
			FirstNonFinite: -1, Divisor: 3,
		}},
		{"weight 0 is absent for an extremum and counted for a mean", []rec{{ce, 0, 0, 0}, {norm, 0, 0, 0}, {peak, 0, 9, 0}, {low, 0, nan, 0}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Count: 1}, absent("aux"), {Name: "norm", Count: 1}, absent("peak"), absent("low"),
			},
			Outcome: loss.Empty, FirstNonFinite: -1,
		}},
		{"a trained loss that is not finite", []rec{{ce, 5, nan, 1}, {ce, 3, inf, 1}, {ce, 4, 2, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 3, Count: 3, NonFinite: true}, absent("aux"), absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: 3, NonFiniteLoss: "ce",
		}},
		{"the earliest of two trained losses", []rec{{ce, 5, nan, 1}, {aux, 2, -inf, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 1, Count: 1, NonFinite: true}, {Name: "aux", Weight: 1, Count: 1, NonFinite: true}, absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: 2, NonFiniteLoss: "aux",
		}},
		{"the first microbatch is the earliest, of the first loss", []rec{{ce, 0, nan, 1}, {aux, 2, -inf, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 1, Count: 1, NonFinite: true}, {Name: "aux", Weight: 1, Count: 1, NonFinite: true}, absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: 0, NonFiniteLoss: "ce",
		}},
		{"the first microbatch is the earliest, of the second loss", []rec{{ce, 2, nan, 1}, {aux, 0, -inf, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 1, Count: 1, NonFinite: true}, {Name: "aux", Weight: 1, Count: 1, NonFinite: true}, absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: 0, NonFiniteLoss: "aux",
		}},
		{"Skipped wins over Empty", []rec{{aux, 0, nan, 1}}, loss.Totals{
			Values: []loss.Value{
				absent("ce"), {Name: "aux", Weight: 1, Count: 1, NonFinite: true}, absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: 0, NonFiniteLoss: "aux",
		}},
		{"a metric that is not finite does not skip", []rec{{ce, 0, 1, 1}, {norm, 0, nan, 1}, {peak, 0, inf, 1}, {peak, 1, 3, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Value: 1, Sum: 1, Weight: 1, Count: 1, Present: true}, absent("aux"),
				{Name: "norm", Weight: 1, Count: 1, NonFinite: true}, {Name: "peak", Weight: 2, Count: 2, NonFinite: true}, absent("low"),
			},
			FirstNonFinite: -1, Divisor: 1,
		}},
		{"finite sums whose total is beyond float64", []rec{{ce, 0, math.MaxFloat64, 1}, {ce, 1, math.MaxFloat64, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 2, Count: 2, NonFinite: true}, absent("aux"), absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: -1, NonFiniteLoss: "ce",
		}},
		{"a microbatch is a better witness than a total", []rec{{ce, 0, math.MaxFloat64, 1}, {ce, 1, math.MaxFloat64, 1}, {aux, 7, nan, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 2, Count: 2, NonFinite: true}, {Name: "aux", Weight: 1, Count: 1, NonFinite: true}, absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: 7, NonFiniteLoss: "aux",
		}},
		{"in either order", []rec{{ce, 7, nan, 1}, {aux, 0, math.MaxFloat64, 1}, {aux, 1, math.MaxFloat64, 1}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 1, Count: 1, NonFinite: true}, {Name: "aux", Weight: 2, Count: 2, NonFinite: true}, absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: 7, NonFiniteLoss: "ce",
		}},
		{"weights beyond float64", []rec{{ce, 0, 1, math.MaxFloat64}, {ce, 1, 1, math.MaxFloat64}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Count: 2, NonFinite: true}, absent("aux"), absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: -1, NonFiniteLoss: "ce",
		}},
		{"a mean beyond float64", []rec{{ce, 0, 1e308, 1e-308}}, loss.Totals{
			Values: []loss.Value{
				{Name: "ce", Weight: 1e-308, Count: 1, NonFinite: true}, absent("aux"), absent("norm"), absent("peak"), absent("low"),
			},
			Outcome: loss.Skipped, FirstNonFinite: -1, NonFiniteLoss: "ce",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ledger(t, defs())
			for range 2 { // the second time after Reset, which must leave nothing of the first step
				record(t, l, c.recs...)
				got, err := reduce(l)
				require.NoError(t, err)
				require.Equal(t, &c.want, got)
				l.Reset()
			}
		})
	}
}

func TestReduceWithoutObjective(t *testing.T) {
	l := ledger(t, []loss.Def{{Name: "metric", Metric: true}})
	record(t, l, rec{0, 0, math.NaN(), 1})
	got, err := reduce(l)
	require.NoError(t, err)
	require.Equal(t, loss.Stepped, got.Outcome)
	require.Equal(t, -1, got.Objective)
	require.Zero(t, got.Divisor)
}

// TestReduceSumObjective checks that the total weight is the divisor, regardless of the objective's reduction.
func TestReduceSumObjective(t *testing.T) {
	l := ledger(t, []loss.Def{{Name: "acc", Metric: true}, {Name: "nll", Reduction: loss.Sum, Objective: true}})
	record(t, l, rec{1, 0, 6, 2}, rec{1, 1, 4, 3})
	got, err := reduce(l)
	require.NoError(t, err)
	require.Equal(t, 1, got.Objective)
	require.Equal(t, 10.0, got.Values[1].Value)
	require.Equal(t, 5.0, got.Divisor)
}

func TestRecordRefuses(t *testing.T) {
	l := ledger(t, defs())
	for _, c := range []struct {
		rec
		want error
		text string
	}{
		{rec{ce, 3, 1, -1}, loss.ErrWeight, `loss: weight is not a finite number >= 0: -1 for "ce" at microbatch 3`},
		{rec{ce, 0, 1, math.NaN()}, loss.ErrWeight, `loss: weight is not a finite number >= 0: NaN for "ce" at microbatch 0`},
		{rec{peak, 0, 1, math.Inf(1)}, loss.ErrWeight, `loss: weight is not a finite number >= 0: +Inf for "peak" at microbatch 0`},
		{rec{-1, 0, 1, 1}, loss.ErrDef, `loss: no such loss: index -1 of 5`},
		{rec{5, 0, 1, 1}, loss.ErrDef, `loss: no such loss: index 5 of 5`},
		{rec{ce, -1, 1, 1}, loss.ErrMicrobatch, `loss: negative microbatch: -1 for "ce"`},
	} {
		err := l.Record(c.def, c.mb, c.sum, c.weight)
		require.ErrorIs(t, err, c.want)
		require.EqualError(t, err, c.text)
	}
	got, err := reduce(l)
	require.NoError(t, err)
	for _, v := range got.Values {
		require.Zero(t, v.Count, "nothing was recorded for %s", v.Name)
	}
}

// reduce ends a step with one rank, and returns its totals.
func reduce(l *loss.Ledger) (*loss.Totals, error) {
	var record loss.Record
	if err := l.Finish(&record); err != nil {
		return nil, err
	}
	return l.Totals(&record)
}

func TestFinishOncePerStep(t *testing.T) {
	l := ledger(t, defs())
	_, err := reduce(l)
	require.NoError(t, err)
	_, err = reduce(l)
	require.ErrorIs(t, err, loss.ErrFinished)
	require.ErrorIs(t, l.Record(ce, 0, 1, 1), loss.ErrFinished)
	l.Reset()
	record(t, l, rec{ce, 0, 1, 1})

	_, err = l.Totals(&loss.Record{})
	require.ErrorIs(t, err, loss.ErrShape)
}

func TestWeight(t *testing.T) {
	l := ledger(t, defs())
	record(t, l, rec{ce, 0, 1, 2}, rec{ce, 1, math.NaN(), 3}, rec{peak, 1, 1, 0})
	require.Equal(t, 5.0, l.Weight(ce))
	require.Zero(t, l.Weight(peak))
	require.Zero(t, l.Weight(-1)+l.Weight(99))
	l.Reset()
	require.Zero(t, l.Weight(ce))
}

// TestLedgerFixedSize checks L7 and L11: recording allocates nothing, and the allocations of a
// step do not depend on the number of microbatches.
func TestLedgerFixedSize(t *testing.T) {
	l := ledger(t, defs())
	var r loss.Record
	l.Snapshot(&r)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		l.Reset()
		for mb := range 100 {
			for def := range defs() {
				_ = l.Record(def, mb, 1.5, 2)
			}
		}
		l.Snapshot(&r)
	})-testing.AllocsPerRun(10, func() { _ = defs() }))

	step := func(m int) float64 {
		return testing.AllocsPerRun(3, func() {
			l.Reset()
			for mb := range m {
				_ = l.Record(ce, mb, 1.5, 2)
			}
			_, _ = reduce(l)
		})
	}
	require.Equal(t, step(128), step(65536))
}

// TestMeanOfMeans shows why sums and weights are kept separate: lengths are lognormal, a longer
// text is easier per token, and the mean of the microbatches' means deviates by about a tenth, regardless of their
// number.
func TestMeanOfMeans(t *testing.T) {
	r := random(t)
	for _, c := range []struct {
		m        int
		low, top float64 // bounds of the mean deviation over draws
	}{{4, 0.08, 0.105}, {64, 0.115, 0.14}, {1024, 0.12, 0.14}} {
		draws := 1 << 20 / c.m / 16
		deviation := 0.0
		for range draws {
			l := ledger(t, defs()[:1])
			ofMeans := 0.0
			for mb := range c.m {
				z := r.NormFloat64()
				tokens := math.Ceil(math.Exp(5 + 0.6*z))
				perToken := 3 - 0.58*z
				record(t, l, rec{ce, mb, perToken * tokens, tokens})
				ofMeans += perToken / float64(c.m)
			}
			totals, err := reduce(l)
			require.NoError(t, err)
			deviation += (ofMeans/totals.Values[ce].Value - 1) / float64(draws)
		}
		t.Logf("M = %d: the mean of means is off by %.1f %%", c.m, 100*deviation)
		require.Greater(t, deviation, c.low)
		require.Less(t, deviation, c.top)
	}
}

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
