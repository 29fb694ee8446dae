package oracle_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	. "github.com/weir-ml/weir/tests/oracle"
)

// change is an allocation at a position, or a release if bytes is negative.
type change struct {
	position int
	class    memory.Class
	bytes    int64
}

// differ returns an error unless the changes equal the oracle's.
func differ(want []Position, changes []change) error {
	got := make([]Position, len(want))
	var live memory.ByClass
	next := 0
	for i := range got {
		p := &got[i]
		p.Action, p.Peak = want[i].Action, live
		for ; next < len(changes) && changes[next].position == i; next++ {
			c := changes[next]
			live[c.class] += c.bytes
			p.Born[c.class] += max(c.bytes, 0)
			if p.Changes++; live.Total() > p.Peak.Total() {
				p.Peak = live
			}
		}
		if p.After = live; *p != want[i] {
			return fmt.Errorf("position %d, %v:\nit has     %v\nthe oracle %v", i, p.Action, *p, want[i])
		}
	}
	if next < len(changes) {
		return fmt.Errorf("change %d of %d is beyond those of the oracle: %v", next, len(changes), changes[next])
	}
	return nil
}

// ran returns the changes that the device of a rank recorded in a step. The record does not show where the
// last action ends, so ran divides the changes from this action on as the oracle does.
func (r *rig) ran(rank int, want []Position) (list []change) {
	last := len(want) - 2
	from := append(slices.Clone(r.cuts[rank]), r.cuts[rank][last]+want[last].Changes)
	at := 0
	for i, e := range r.devs[rank].Record() {
		for at+1 < len(from) && from[at+1] <= i {
			at++
		}
		c := change{at, e.Class, e.Bytes}
		if !e.Alloc {
			c.bytes = -e.Bytes
		}
		list = append(list, c)
	}
	return list
}

// played returns the planner's changes for a rank. Each change has a place in the layout. Because several
// repeats share a place, played divides the changes of a place as the oracle does.
func played(plan *layout.Memory, rank int, want []Position) (list []change) {
	places := placesOf(plan, rank)
	at, count := 0, 0
	for c := range plan.All(rank) {
		for at < len(want)-1 && count == want[at].Changes {
			at, count = at+1, 0
		}
		count++
		made := change{at, c.Class, c.Bytes}
		if c.Place != places[at] {
			made.position = -1
		}
		if !c.Alloc {
			made.bytes = -c.Bytes
		}
		list = append(list, made)
	}
	return list
}

// placesOf returns the places of the layout for the actions of a rank, and for the step's end.
func placesOf(plan *layout.Memory, rank int) (places []int) {
	for _, s := range plan.Ranks[rank].Layout.Segments {
		for repeat := range s.Repeat {
			for k := range s.Body {
				places = append(places, s.Base(repeat)+k)
			}
		}
	}
	return append(places, plan.Ranks[rank].Layout.StepEnd())
}

// step runs a step, requires that the runner's changes equal the oracle's, and returns the
// oracle's positions for each rank.
func (r *rig) step(t *testing.T, run func(context.Context, int, runner.Source[T]) (*runner.Result, error), evaluates bool) (want [][]Position) {
	ranks := r.Placement.Ranks
	r.programs, r.cuts, r.samples = make([][]schedule.Action, ranks), make([][]int, ranks), make([][]memory.Sample, ranks)
	for _, dev := range r.devs {
		dev.Forget()
	}
	result, err := run(t.Context(), r.Microbatches, r.sources)
	require.NoError(t, err)
	r.Evaluates = evaluates
	for rank, dev := range r.devs {
		positions, err := r.Positions(r.programs, rank)
		require.NoError(t, err)
		require.NoError(t, differ(positions, r.ran(rank, positions)), "the runner, rank %d", rank)
		r.checkSamples(t, rank, positions, dev.Live(), result.Planned)
		want = append(want, positions)
	}
	return want
}

// checkSamples compares the records of the memory log, one for each microbatch that retires, with the positions.
func (r *rig) checkSamples(t *testing.T, rank int, positions []Position, model int64, planned bool) {
	samples := r.samples[rank]
	var peak memory.ByClass
	for _, p := range positions {
		if p.Peak.Total() > peak.Total() {
			peak = p.Peak
		}
		if p.Action.Drop()&schedule.Retire == 0 {
			continue
		}
		require.NotEmpty(t, samples)
		s := samples[0]
		samples = samples[1:]
		s.Classes[memory.Resident] -= model
		s.PeakClasses[memory.Resident] -= model
		require.Equal(t, p.After, s.Classes, "live by class, rank %d, %v", rank, p.Action)
		require.Equal(t, p.After.Total(), s.Live-model)
		require.Equal(t, peak, s.PeakClasses, "peak by class, rank %d, %v", rank, p.Action)
		require.Equal(t, peak.Total(), s.Peak-model)
		if require.Equal(t, planned, s.Planned); planned {
			require.Equal(t, s.Live, s.LivePlanned)
			require.Equal(t, s.Peak, s.PeakPlanned)
		}
		peak = p.After
	}
	require.Empty(t, samples)
}

// Sets of stages of a model.
func none(_, _ int) bool              { return false }
func all(_, _ int) bool               { return true }
func odd(stage, _ int) bool           { return stage%2 == 1 }
func lowerHalf(stage, depth int) bool { return stage < depth/2 }

// variant is a setup without schedule and placement.
type variant struct {
	name               string
	frozen, recomputes func(stage, depth int) bool
	deep               bool // ranks have twice as many stages as usual
	setup
}

var variants = []variant{
	{"plain", none, none, false, setup{}},
	{"recompute", none, all, false, setup{}},
	{"look-ahead", none, odd, false, setup{Model: Model{LookAhead: 2}}},
	{"deep", none, odd, true, setup{}},
	{"frozen below", lowerHalf, none, false, setup{}},
	{"frozen between", odd, all, false, setup{quantizes: true}},
	{"unsplit", none, odd, false, setup{unsplit: true}},
	{"copies at the start", lowerHalf, all, false, setup{quantizes: true, atStart: true}},
	{"sharded", none, none, false, setup{quantizes: true, sharded: true, Model: Model{LookAhead: 1}}},
	{"uneven", none, odd, false, setup{uneven: true}},
}

// under returns the setup of the variant under a schedule, and whether the schedule supports it
// on that number of ranks.
func (v *variant) under(found schedule.Schedule, ranks int) (setup, bool) {
	s, depth := v.setup, ranks*found.PerRank
	if v.deep {
		depth *= 2
	}
	if s.schedule = found; found.Name == "seq1f1b" {
		s.slices = 1 + ranks
	}
	var err error
	s.Placement, err = found.Place(ranks, depth)
	for stage := range s.Placement.Stages() {
		s.Frozen = append(s.Frozen, v.frozen(stage%depth, depth))
		s.Recomputes = append(s.Recomputes, v.recomputes(stage%depth, depth))
	}
	return s, err == nil
}

// TestThreeBooks compares the books of the runner and the planner with a third one (L6), under
// every schedule, in training and in evaluation, with dynamic and with planned memory; half of the
// setups run without -long.
func TestThreeBooks(t *testing.T) {
	testkit.Slow(t)
	for _, found := range schedule.Schedules() {
		t.Run(found.Name, func(t *testing.T) {
			for i, v := range variants {
				for ranks := 1; ranks <= 4; ranks++ {
					s, runs := v.under(found, ranks)
					if !runs || (i+ranks)%4 > 1 && !*testkit.Long {
						continue
					}
					if s.Microbatches = 1 + (5*i+3*ranks)%7; (i+ranks)%2 == 0 {
						s.Microbatches = 2*ranks + 6 + i%3 // so that repeats of segments alternate
					}
					t.Run(fmt.Sprintf("%s on %d", v.name, ranks), func(t *testing.T) {
						r := newRig(t, s)
						dynamic, planned := r.group(t, nil), r.group(t, r.record(t))
						plan, err := planned.Prepare(t.Context(), s.Microbatches, r.sources)
						require.NoError(t, err)
						checkPlan(t, plan.(*layout.Memory), r.step(t, dynamic.Step, false))
						r.step(t, dynamic.Evaluate, true)
						r.step(t, planned.Step, false)
						r.step(t, planned.Evaluate, true)
					})
				}
			}
		})
	}
}

// checkPlan compares the planner's changes for every rank.
func checkPlan(t *testing.T, plan *layout.Memory, want [][]Position) {
	for rank, want := range want {
		require.NoError(t, differ(want, played(plan, rank, want)), "the planner, rank %d", rank)
		highest := slices.MaxFunc(want, func(a, b Position) int { return cmp.Compare(a.Peak.Total(), b.Peak.Total()) })
		require.Equal(t, highest.Peak, plan.Ranks[rank].Peak.Classes)
		require.Equal(t, highest.Peak.Total(), plan.Ranks[rank].Bound)
		for i, place := range placesOf(plan, rank) {
			level := plan.Ranks[rank].Layout.Levels[place]
			require.Equal(t, memory.Level{Live: want[i].After.Total(), Peak: want[i].Peak.Total()}, level, "rank %d, %v", rank, want[i].Action)
		}
	}
}

// TestEveryWrongBookIsFound changes one allocation or release of the runner or the planner at a
// time: it moves it to the previous or the next action, changes its class or its size by one byte,
// repeats it, or omits it.
func TestEveryWrongBookIsFound(t *testing.T) {
	found, err := schedule.Find("zb-v")
	require.NoError(t, err)
	s, _ := (&variant{"", none, odd, false, setup{quantizes: true, Model: Model{Microbatches: 5}}}).under(found, 2)
	r := newRig(t, s)
	group := r.group(t, r.record(t))
	plan, err := group.Prepare(t.Context(), s.Microbatches, r.sources)
	require.NoError(t, err)
	for rank, want := range r.step(t, group.Step, false) {
		for name, changes := range map[string][]change{"runner": r.ran(rank, want), "planner": played(plan.(*layout.Memory), rank, want)} {
			for i, c := range changes {
				earlier, later, class, more, less := c, c, c, c, c
				earlier.position--
				later.position++
				class.class = (c.class + 1) % memory.Class(memory.NumClasses)
				more.bytes++
				less.bytes--
				for role, mutant := range map[string][]change{"earlier": {earlier}, "later": {later}, "class": {class}, "more": {more}, "less": {less}, "twice": {c, c}, "missing": nil} {
					wrong := slices.Concat(changes[:i], mutant, changes[i+1:])
					slices.SortStableFunc(wrong, func(a, b change) int { return a.position - b.position })
					require.Error(t, differ(want, wrong), "%s, rank %d, change %d of %d, %v: %s", name, rank, i, len(changes), c, role)
				}
			}
		}
	}
}
