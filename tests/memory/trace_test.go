package memory_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
)

// The memory plan equals the runner's allocations and releases event by event, for every schedule, on one
// rank and on several. Without -long, half of the setups run, each of the variants on one rank or on two.
func TestTraceIsTheRunners(t *testing.T) {
	testkit.Slow(t)
	for _, found := range schedule.Schedules() {
		t.Run(found.Name, func(t *testing.T) {
			most := 4
			if testkit.Raced {
				most = 2
			}
			for ranks := 1; ranks <= most; ranks++ {
				for i, s := range variants(found, ranks) {
					if _, _, err := s.placement(); err != nil || (i/2+ranks/2)%2 == 1 && !*testkit.Long {
						continue
					}
					m := 1 + (i*5+ranks*3)%7
					if (i+ranks)%2 == 0 {
						m = 4*ranks + 3 + i // repeats of its segments alternate
					}
					checkTrace(t, s, m)
				}
			}
		})
	}
}

// variants are setups of a schedule that differ in their stages.
func variants(found schedule.Schedule, ranks int) []setup {
	count := ranks * found.PerRank
	if found.Name == "dualpipe" && ranks%2 == 1 {
		return nil
	}
	plain := setup{schedule: found.Name, ranks: ranks, stages: count, model: tiny, capacity: 1}
	recompute, untied, frozen, unsplit, deep, eager := plain, plain, plain, plain, plain, plain
	recompute.model.Recompute = true
	recompute.capacity = 0
	untied.model.Untied = true
	untied.capacity = schedule.Unlimited
	frozen.frozen = count / 2
	unsplit.unsplit = true
	deep.stages = 2 * count
	deep.lookAhead = 1
	eager.lookAhead = 3
	eager.model.Dropout = 0.5
	return []setup{plain, recompute, untied, frozen, unsplit, deep, eager}
}

// event is the allocation or release of a buffer, by its number in the step.
type event struct {
	alloc  bool
	serial uint64
	bytes  int64
	class  string
}

// String is for the message of a failing comparison.
func (e event) String() string {
	return fmt.Sprintf("%v #%d %d %s", map[bool]string{true: "birth", false: "end"}[e.alloc], e.serial, e.bytes, e.class)
}

// checkTrace runs a step on Null devices and compares each rank's record with the plan.
func checkTrace(t *testing.T, s setup, m int) {
	t.Helper()
	r := newRig(t, s, true)
	planned := r.cfg
	profile, err := record.Stages(t.Context(), r.cfg, r.shape(5))
	require.NoError(t, err, "%v", s)
	planned.Memory.Profile = profile
	planned.Memory.Search.Nodes = 1 // any layout is good enough
	group, err := runner.New(planned)
	require.NoError(t, err, "%v", s)
	plan := prepare(t, group, m, nil)

	free, err := runner.New(r.cfg)
	require.NoError(t, err)
	for _, g := range []*runner.Runner[T]{free, group} {
		marks := make([]uint64, len(r.nulls))
		for rank, dev := range r.nulls {
			dev.Forget()
			marks[rank] = dev.Mark()
		}
		result, err := g.Step(t.Context(), m, r.sources(fixed(5)))
		require.NoError(t, err, "%v M=%d", s, m)
		require.Equal(t, g == group, result.Planned)
		for rank, dev := range r.nulls {
			sameTrace(t, s, m, rank, ran(dev, marks[rank]), played(plan, rank))
		}
	}
}

// ran returns the events that a device has recorded in a step.
func ran(dev *kernels.Null, mark uint64) (list []event) {
	for _, e := range dev.Record() {
		list = append(list, event{e.Alloc, e.Serial - mark, e.Bytes, e.Class.String()})
	}
	return list
}

// played returns the events of the plan.
func played(plan *layout.Memory, rank int) (list []event) {
	for c := range plan.All(rank) {
		list = append(list, event{c.Alloc, uint64(c.Serial), c.Bytes, c.Class.String()})
	}
	return list
}

// sameTrace reports the first difference.
func sameTrace(t *testing.T, s setup, m, rank int, ran, played []event) {
	t.Helper()
	for i := range max(len(ran), len(played)) {
		if i >= len(ran) || i >= len(played) || ran[i] != played[i] {
			require.Fail(t, "the plan and the runner differ", "%v M=%d rank %d, event %d of %d and %d:\nran    %v\nplayed %v",
				s, m, rank, i, len(ran), len(played), ran[i:min(i+6, len(ran))], played[min(i, len(played)):min(i+6, len(played))])
		}
	}
}
