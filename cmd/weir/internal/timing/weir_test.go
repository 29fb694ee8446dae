package timing_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/timing"
	"github.com/weir-ml/weir/cmd/weir/internal/traces"
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/formats/chrometrace"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// sleepers returns a chain of stages that sleep for 10 ms in a forward and 20 ms in a backward, and
// longer on a slow stage.
func sleepers(n, slow int, factor float64) (chain []stages.Stage[*float64]) {
	x := []stages.Port{{Name: "x"}}
	for s := range n {
		f, b := 10*time.Millisecond, 20*time.Millisecond
		if s == slow {
			f, b = time.Duration(float64(f)*factor), time.Duration(float64(b)*factor)
		}
		spec := stages.Spec{Name: "sleep"}
		if s == 0 {
			spec.Reads = []stages.Read{{Part: "number"}}
		} else {
			spec.Inputs = x
		}
		last := s == n-1
		if last {
			spec.Losses = []string{"loss"}
		} else {
			spec.Outputs = x
		}
		chain = append(chain, &stages.Func[*float64]{
			Declares: spec,
			ForwardFunc: func(_ context.Context, mb batchctx.Microbatch[*float64], _, out []*float64) error {
				time.Sleep(f)
				if last {
					mb.Loss(1, 1, 1)
				} else {
					out[0] = new(float64)
				}
				return nil
			},
			BackwardFunc: func(_ context.Context, mb batchctx.Microbatch[*float64], _, gradIn []*float64) error {
				time.Sleep(b)
				if last {
					mb.LossSeed(1)
				}
				if len(gradIn) > 0 {
					gradIn[0] = new(float64)
				}
				return nil
			},
		})
	}
	return chain
}

// trained runs three steps of 1F1B on four ranks and returns the trace that a hook wrote. An action
// ends when the next action of its rank begins.
func trained(t *testing.T, chain []stages.Stage[*float64], copying func(from, to int) time.Duration) []*traces.Trace {
	var out bytes.Buffer
	w := chrometrace.New(&out)
	type running struct {
		action schedule.Action
		since  time.Time
	}
	now, began := make([]running, len(chain)), time.Now()
	turn := make(chan struct{}, 1)
	end := func(rank int) {
		if at := now[rank]; !at.since.IsZero() {
			length := chrometrace.Time(time.Since(at.since).Microseconds())
			require.NoError(t, w.Event(chrometrace.Event{Phase: "X", Name: at.action.String(), Class: at.action.Kind().String(), Rank: rank, Start: chrometrace.Time(at.since.Sub(began).Microseconds()), Length: &length}))
		}
		now[rank] = running{}
	}
	var spaces []memory.Space[*float64]
	for range chain {
		spaces = append(spaces, memory.NewGCSpace(nil, func(*float64) int64 { return 8 }))
	}
	run, err := runner.New(runner.Config[*float64]{
		Stages: chain, Schedule: "1f1b", Spaces: spaces,
		Losses: []loss.Def{{Name: "loss", Objective: true}},
		Topology: runner.Topology[*float64]{Capacity: 1, Copy: func(from, to int, h *float64) (*float64, error) {
			time.Sleep(copying(from, to))
			return new(float64), nil
		}},
		Hooks: runner.Hooks{Action: func(rank int, a schedule.Action) {
			turn <- struct{}{}
			end(rank)
			now[rank] = running{a, time.Now()}
			<-turn
		}},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, run.Close()) }()
	numbers := runner.Indexed(func(_ context.Context, e batchctx.Entry[*float64]) error { e.Put("number", new(float64)); return nil })
	for range 3 {
		result, err := run.Step(t.Context(), 8, numbers)
		require.NoError(t, err)
		_ = result.Update(func(float64) error { return nil })
		for rank := range now {
			end(rank)
		}
	}
	require.NoError(t, w.Close())
	all, err := traces.ReadFrom("weir.json", &out)
	require.NoError(t, err)
	return sorted(all)
}

// For a run of Weir in virtual time, the simulation with the measured costs is within 3 % of the
// measured makespan, and a slow rank and a slow link are reported.
func TestWeirRun(t *testing.T) {
	fast := func(int, int) time.Duration { return 500 * time.Microsecond }
	for name, c := range map[string]struct {
		slow    int
		copying func(from, to int) time.Duration
	}{
		"even": {-1, fast}, "slow rank": {2, fast},
		"slow link": {-1, func(from, to int) time.Duration {
			if from == 1 && to == 2 {
				return 15 * time.Millisecond
			}
			return fast(from, to)
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := reportOf(t, timing.Request{Traces: trained(t, sleepers(4, c.slow, 1.5), c.copying)})
			require.Empty(t, r.Refused)
			require.Len(t, r.Steps, 3)
			switch s := r.Straggler; name {
			case "even":
				require.Nil(t, s)
			case "slow rank":
				require.Equal(t, 2, s.Rank)
			default:
				require.NotNil(t, s)
				require.Equal(t, [2]int{1, 2}, [2]int{s.Link.From, s.Link.To})
			}
			require.InEpsilon(t, r.Measured.Makespan, r.Simulated.Makespan, 0.03, name)
		})
	}
}
