package check_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// generate returns a plan of a random rule, lowered by the passes for a random link capacity, and
// that capacity.
func generate(t *testing.T, rng *rand.Rand) (*schedule.Plan, int) {
	for {
		all := schedule.Schedules()
		s := all[rng.IntN(len(all))]
		ranks := 1 + rng.IntN(3)
		placement, err := s.Place(ranks, ranks*s.PerRank)
		if err != nil {
			continue
		}
		params := schedule.Params{Placement: placement, Microbatches: 1 + rng.IntN(4), Mode: schedule.Mode(rng.IntN(5) / 4)}
		if s.Name == "seq1f1b" {
			params.Slices = 1 + rng.IntN(3)
		}
		if rng.IntN(4) == 0 {
			params.Frozen = make([]bool, placement.Stages())
			for stage := range params.Frozen {
				params.Frozen[stage] = !placement.Last(stage) && rng.IntN(2) == 0
			}
		}
		p, err := s.Rule(params)
		if err != nil {
			require.ErrorIs(t, err, schedule.ErrParams)
			continue
		}
		capacity := rng.IntN(4) - 1
		if rng.IntN(4) > 0 {
			p, err = lower.Transfers(p, capacity)
			require.NoError(t, err)
		}
		if rng.IntN(4) == 0 && params.Mode == schedule.Training {
			p, err = lower.Reduce(p, p.Microbatches%4)
			require.NoError(t, err)
		}
		if rng.IntN(4) == 0 {
			p, err = lower.Shard(p, 2)
			require.NoError(t, err)
		}
		if rng.IntN(4) == 0 {
			facts := make([]schedule.StageInfo, placement.Stages())
			for stage := range facts {
				facts[stage].Quantizes = rng.IntN(2) == 0
			}
			p, err = lower.Quantize(p, facts, lower.Quantizing(rng.IntN(2)))
			require.NoError(t, err)
		}
		return p, capacity
	}
}

// TestCheckAgreesWithExecution changes valid plans in one place and requires that Links rejects
// exactly the plans that do not run.
func TestCheckAgreesWithExecution(t *testing.T) {
	mutants := 20_000
	if *testkit.Long {
		mutants = 100_000
	}
	rng := rand.New(rand.NewPCG(plantest.Seed(), 0))
	valid := 0
	for n := 0; n < mutants; {
		features := plantest.DrawFeatures(rng)
		if features.Runtime = schedule.Weir; rng.IntN(2) == 0 {
			features.Runtime += schedule.Runtime(1 + rng.IntN(int(schedule.PyTorch215Edge)))
		}
		p, capacity := plantest.Grow(rng, features)
		if rng.IntN(3) == 0 {
			p, capacity = generate(t, rng)
		}
		if p.Runtime.Queue() == schedule.NoQueue || capacity != schedule.Unlimited { // a plan that needs buffers can block its queues
			require.Empty(t, plantest.Judge(p, capacity, rng), "seed %d\n%s", plantest.Seed(), plantest.Text(t, p))
			require.NoError(t, check.Links(p, capacity), "seed %d\n%s", plantest.Seed(), plantest.Text(t, p))
		}
		for range 10 {
			q := plantest.Mutate(p, rng)
			if q.Runtime.Posts() {
				postEarlier(q, rng)
			}
			capacity := rng.IntN(4) - 1
			fault := plantest.Judge(q, capacity, rng)
			err := check.Links(q, capacity)
			if (fault == "") != (err == nil) {
				t.Fatalf("seed %d, capacity %d: the plan runs %q, and Links returns %v\n%s", plantest.Seed(), capacity, fault, err, plantest.Text(t, q))
			}
			if fault == "" {
				valid++
			}
			require.Equal(t, err != nil, errors.Is(err, check.ErrInvalidPlan))
			n++
		}
	}
	require.Greater(t, valid, mutants/20) // otherwise the test would not show that Links accepts valid plans
	require.Less(t, valid, mutants/2)
	t.Logf("%d of %d mutants are valid", valid, mutants)
}

// postEarlier moves some receives of a plan without repeats to earlier places.
func postEarlier(p *schedule.Plan, rng *rand.Rand) {
	for _, program := range p.Programs {
		for i := range program {
			program[i].Body = slices.Clone(program[i].Body)
			for k, a := range program[i].Body {
				if kind := a.Kind(); (kind == schedule.RecvF || kind == schedule.RecvB) && rng.IntN(3) == 0 {
					at := rng.IntN(k + 1)
					copy(program[i].Body[at+1:k+1], program[i].Body[at:k])
					program[i].Body[at] = a
				}
			}
		}
	}
}

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

// spoil changes the program of a rank in at most one place.
func spoil(t *rapid.T, p *schedule.Plan, rank int) {
	program := p.Programs[rank]
	segment := &program[rapid.IntRange(0, len(program)-1).Draw(t, "segment")]
	segment.Body = slices.Clone(segment.Body)
	at := rapid.IntRange(0, len(segment.Body)-1).Draw(t, "at")
	a := &segment.Body[at]
	switch rapid.IntRange(0, 9).Draw(t, "spoil") {
	case 0:
		other := rapid.IntRange(0, len(segment.Body)-1).Draw(t, "other")
		*a, segment.Body[other] = segment.Body[other], *a
	case 1:
		if len(segment.Body) > 1 {
			segment.Body = slices.Delete(segment.Body, at, at+1)
		}
	case 2:
		segment.Body = append(segment.Body, *a)
	case 3:
		*a = schedule.NewAction(a.Kind(), a.Stage(), rapid.IntRange(0, p.Microbatches).Draw(t, "mb")).WithDrop(a.Drop())
	case 4:
		*a = a.WithDrop(a.Drop() ^ 1<<rapid.IntRange(0, 8).Draw(t, "bit"))
	case 5:
		segment.Repeat = max(1, segment.Repeat+rapid.IntRange(-2, 2).Draw(t, "repeat"))
	case 6:
		segment.Stride += rapid.IntRange(-2, 2).Draw(t, "stride")
	case 7:
		*a = schedule.NewAction(schedule.Kind(rapid.IntRange(1, int(schedule.Quantize)).Draw(t, "kind")), a.Stage(), a.Microbatch()).WithDrop(a.Drop())
	case 8:
		other := &program[rapid.IntRange(0, len(program)-1).Draw(t, "other")]
		*segment, *other = *other, *segment
	}
}
