package runner_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/transport"
)

// frozenReplicas returns the configuration of replicas of a chain of frozen stages, one on each rank.
func frozenReplicas(count, ranks int) runner.Config[number] {
	cfg := config(nil)
	cfg.Schedule, cfg.Spaces = "1f1b", nil
	cfg.Topology.Copy, cfg.Topology.Capacity = copyNumber, 1
	cfg.Replicas.Count = count
	for range count {
		for _, row := range rowsOf(schedule.Looped(ranks, ranks)) {
			row.contributes = batchctx.Frozen
			cfg.Stages = append(cfg.Stages, row)
			cfg.Spaces = append(cfg.Spaces, memory.NewGCSpace(classOf, func(number) int64 { return 8 }))
		}
	}
	return cfg
}

// TestReplicasShareABatch checks that replica r gets the microbatches r, r+R, and so on, even of a batch that R does
// not divide, from an Indexed source and from a Stream, and that all ranks have the losses of the whole batch.
func TestReplicasShareABatch(t *testing.T) { // L9
	for _, streamed := range []bool{false, true} {
		cfg := frozenReplicas(3, 2)
		var mu sync.Mutex
		asked := make([][]int, 6) // by rank, counted over all replicas
		cfg.Hooks.Microbatch = func(s *memory.Sample) {
			require.Equal(t, s.Rank/2, s.Microbatch%3)
		}
		ask := func(e batchctx.Entry[number]) {
			mu.Lock()
			defer mu.Unlock()
			asked[e.Rank()] = append(asked[e.Rank()], e.Index())
		}
		made := 0
		source := runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
			ask(e)
			e.Put("x", num(float64(1+e.Index())))
			return nil
		})
		if streamed {
			source = runner.Stream(func(context.Context) (float64, error) { made++; return float64(made), nil },
				func(item float64, e batchctx.Entry[number]) error {
					ask(e)
					e.Put("x", num(item))
					return nil
				})
		}
		run := newRunner(t, cfg)
		for step, m := range []int{5, 3, 7} {
			result := runStep(t, run, m, source)
			require.Equal(t, m, result.Microbatches)
			require.Len(t, result.Ranks, 6)
			first := 0
			if streamed {
				first = []int{0, 5, 8}[step]
			}
			sum := 0.0
			for i := range m {
				sum += float64(first + i + 1)
			}
			require.InEpsilon(t, (4.0/3)*(5.0/4)*sum/float64(m), result.Loss("loss"), 1e-12)
			for rank := range asked {
				var want []int
				for i := rank / 2; i < m; i += 3 {
					want = append(want, i)
				}
				require.Equal(t, want, asked[rank], "rank %d of %d microbatches", rank, m)
			}
			for rank := range asked {
				asked[rank] = nil
			}
		}
		_, err := run.Step(t.Context(), 2, source)
		require.ErrorIs(t, err, schedule.ErrParams)
		require.ErrorContains(t, err, "2 microbatches for 3 replicas: each needs at least one")
		evaluate(t, run, 4, source)
		require.NoError(t, run.Close())
	}
}

// TestErrorsNameReplicaAndRank ends a step in a stage of the second rank of the second replica.
func TestErrorsNameReplicaAndRank(t *testing.T) { // L8
	cfg := frozenReplicas(2, 2)
	cause := errors.New("planted")
	cfg.Stages[3] = &failing{cfg.Stages[3].(*times), func(mb view) { mb.Check(cause) }}
	run := newRunner(t, cfg)
	_, err := run.Step(t.Context(), 4, indexed())
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "runner: replica 1 rank 1 action 1F0 (stage 1 times1, microbatch 1): planted")
	var where *transport.StepError
	require.ErrorAs(t, err, &where)
	require.Equal(t, 3, where.Rank)
	require.Equal(t, 2, where.Ranks)
}

func TestReplicasAreRefused(t *testing.T) {
	for says, change := range map[string]func(cfg *runner.Config[number]){
		"Replicas.Count is -1":                       func(cfg *runner.Config[number]) { cfg.Replicas.Count = -1 },
		"Replicas.Shard is 4":                        func(cfg *runner.Config[number]) { cfg.Replicas.Shard = 4 },
		"Replicas.Shard is 7: give 0 (nothing), 1 (": func(cfg *runner.Config[number]) { cfg.Replicas = runner.Replicas{Shard: 7} },
		"Replicas.Shard is -1":                       func(cfg *runner.Config[number]) { cfg.Replicas = runner.Replicas{Count: 1, Shard: -1} },
		"4 stages and 3 replicas":                    func(cfg *runner.Config[number]) { cfg.Replicas.Count = 3 },
		"stage 1 (times1) of replica 1 differs from stage 1 (times1) of replica 0 in its name": func(cfg *runner.Config[number]) {
			cfg.Stages[3].(*times).param = "another"
		},
	} {
		cfg := frozenReplicas(2, 2)
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), says)
	}
}

// TestOwned checks that replicas own every element once, in their order, and that a short parameter
// belongs to one of them.
func TestOwned(t *testing.T) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	defer host.Close()
	for _, n := range []int{1, 7, 1000, 1 << 16, 1<<20 + 13, 3_000_001} {
		for _, replicas := range []int{1, 2, 3, 4, 64, 100} {
			covered, owners := 0, 0
			for replica := range replicas {
				first, count := runner.ShardRange[kernels.Buffer](host, fmt.Sprint("w", n), n, replica, replicas)
				if count > 0 {
					require.Equal(t, covered, first, "%d elements, replica %d of %d", n, replica, replicas)
					owners++
				}
				covered += count
			}
			require.Equal(t, n, covered)
			require.Equal(t, min(replicas, host.Parts(n)), owners)
		}
	}
}
