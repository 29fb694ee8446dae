package check_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// growMarked returns a random valid plan with drops, and its link capacity.
func growMarked(t *testing.T, rng *rand.Rand) (*schedule.Plan, int) {
	for {
		features := plantest.DrawFeatures(rng)
		features.Runtime = schedule.Runtime(rng.IntN(2))
		p, capacity := plantest.Grow(rng, features)
		facts := make([]schedule.StageInfo, p.Placement.Stages())
		for s := range facts {
			facts[s].Frozen = s < len(p.Frozen) && p.Frozen[s]
			facts[s].Split = true
			for kind := schedule.F; kind <= schedule.W; kind++ {
				if rng.IntN(3) == 0 {
					facts[s].Reads[kind] = rng.Uint64N(1 << plantest.Parts)
				}
			}
		}
		want := plantest.NewOracle(p, facts)
		if want.Uneven || want.PartlyRead || unwaited(p) {
			continue
		}
		marked, err := lower.Lifetimes(p, facts, plantest.Parts)
		require.NoError(t, err)
		return marked, capacity
	}
}

// unwaited reports whether the plan has a send without a wait.
func unwaited(p *schedule.Plan) bool {
	sends := 0
	for rank := range p.Programs {
		for a := range p.All(rank) {
			switch a.Kind() {
			case schedule.SendF, schedule.SendB:
				sends++
			case schedule.WaitF, schedule.WaitB:
				sends--
			}
		}
	}
	return sends != 0
}

// judgeDrops returns the first fault that the oracle finds in a plan with drops, or "" if there is
// none.
func judgeDrops(p *schedule.Plan, capacity int, rng *rand.Rand) string {
	if fault := plantest.Judge(p, capacity, rng); fault != "" {
		return fault
	}
	want := plantest.NewOracle(p, p.StageInfo)
	enough := func(declared, needed []int) bool {
		for i, n := range needed {
			if declared != nil && declared[i] < n {
				return false
			}
		}
		return true
	}
	switch {
	case want.Uneven || want.PartlyRead:
		return "undroppable parts"
	case unwaited(p):
		return "a send without a wait"
	case !enough(p.StageWindows, want.Windows), !enough(p.SendWindows, want.Outgoing), !enough(p.EntryWindows, want.Entries):
		return "more in flight than declared"
	}
	for rank := range p.Programs {
		for i, a := range slices.Collect(p.All(rank)) {
			if a.Drop() != want.Drops[rank][i] {
				return a.String() + " drops " + a.Drop().String()
			}
			if a.Drop()&schedule.DropParts != 0 && p.Parts[a.Stage()][a.Kind()] != want.Table[plantest.Cell{Stage: a.Stage(), Mb: int(a.Kind())}] {
				return a.String() + " drops other parts"
			}
		}
	}
	return ""
}

// mutateMarked changes a plan with drops in one place.
func mutateMarked(p *schedule.Plan, rng *rand.Rand) *schedule.Plan {
	q := *p
	change := func(list []int) []int {
		list = slices.Clone(list)
		list[rng.IntN(len(list))] += 1 - 2*rng.IntN(2)
		return list
	}
	switch rng.IntN(10) {
	case 0:
		q.StageWindows = change(p.StageWindows)
	case 1:
		q.EntryWindows = change(p.EntryWindows)
	case 2:
		if p.SendWindows != nil {
			q.SendWindows = change(p.SendWindows)
		}
	case 3:
		q.Parts = slices.Clone(p.Parts)
		q.Parts[rng.IntN(len(q.Parts))][1+rng.IntN(int(schedule.W))] ^= 1 << rng.IntN(plantest.Parts)
	case 4, 5, 6:
		rank := rng.IntN(len(p.Programs))
		if len(p.Programs[rank]) > 0 {
			body := slices.Clone(p.Programs[rank][0].Body)
			at := rng.IntN(len(body))
			body[at] = body[at].WithDrop(body[at].Drop() ^ 1<<rng.IntN(8))
			q.Programs = slices.Clone(p.Programs)
			q.Programs[rank] = []schedule.Segment{{Body: body, Repeat: 1}}
		}
	default:
		return plantest.Mutate(p, rng)
	}
	return &q
}

// TestCheckAgreesAboutDrops changes plans with drops in one place and requires that Links rejects
// exactly the plans whose drops differ from the oracle's, that hold more than they declare, or that
// do not run.
func TestCheckAgreesAboutDrops(t *testing.T) {
	mutants := 5_000
	if *testkit.Long {
		mutants = 100_000
	}
	rng := rand.New(rand.NewPCG(plantest.Seed(), 2))
	valid := 0
	for n := 0; n < mutants; {
		p, capacity := growMarked(t, rng)
		p = plantest.Expand(p)
		require.Empty(t, judgeDrops(p, capacity, rng), "seed %d\n%s", plantest.Seed(), plantest.Text(t, p))
		require.NoError(t, check.Links(p, capacity), "seed %d\n%s", plantest.Seed(), plantest.Text(t, p))
		for range 10 {
			q := mutateMarked(p, rng)
			fault := judgeDrops(q, capacity, rng)
			err := check.Links(q, capacity)
			if (fault == "") != (err == nil) {
				t.Fatalf("seed %d, capacity %d: the plan is %q, and Links returns %v\n%s", plantest.Seed(), capacity, fault, err, plantest.Text(t, q))
			}
			if fault == "" {
				valid++
			}
			require.Equal(t, err != nil, errors.Is(err, check.ErrInvalidPlan))
			n++
		}
	}
	require.Greater(t, valid, mutants/20)
	require.Less(t, valid, mutants/2)
	t.Logf("%d of %d mutants are valid", valid, mutants)
}
