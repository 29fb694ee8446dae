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
