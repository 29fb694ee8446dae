package parity_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	reference "github.com/weir-ml/weir/tests/parity"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// packs lists the microbatches of a packed step in the planned order, each with the numbers of its sequences.
type packs [][]int

// source returns the microbatches on the devices of all ranks, in the planned order.
func (p packs) source(devs []*kernels.Host, batch []reference.Sequence) runner.Source[kernels.Buffer] {
	var list []runner.Source[kernels.Buffer]
	for _, dev := range devs {
		list = append(list, runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
			var all reference.Sequence
			for _, n := range p[entry.Index()] {
				s := batch[n]
				all.Tokens, all.Labels, all.Weights = append(all.Tokens, s.Tokens...), append(all.Labels, s.Labels...), append(all.Weights, s.Weights...)
			}
			transformer.Put(dev, entry, all.Tokens, all.Labels, all.Weights)
			return nil
		}))
	}
	return runner.PerRank(list...)
}

// sequences returns the function for Model.Sequences.
func (p packs) sequences(batch []reference.Sequence) func(int) []transformer.Sequence {
	all := make([][]transformer.Sequence, len(p))
	for mb, numbers := range p {
		for _, n := range numbers {
			all[mb] = append(all[mb], transformer.Sequence{Number: n, Tokens: len(batch[n].Tokens)})
		}
	}
	return func(mb int) []transformer.Sequence { return all[mb] }
}

// gradientsOf runs a step of the packs with a runner for all ranks or, over sockets, one for each rank.
func (p packs) gradientsOf(t *testing.T, v variant, sockets bool, batch []reference.Sequence) numbers {
	var cfg runner.Config[kernels.Buffer]
	r := newRig(t, small(), v, func(c *runner.Config[kernels.Buffer]) { cfg = *c })
	defer r.close()
	r.model.Sequences = p.sequences(batch)
	if !sockets {
		result, err := r.runner.Step(t.Context(), len(p), p.source(r.devs, batch))
		require.NoError(t, err)
		return r.numbers(result)
	}
	require.NoError(t, r.runner.Close())
	results, errs := make([]*runner.Result, len(r.devs)), make([]error, len(r.devs))
	address := "unix:" + filepath.Join(t.TempDir(), "job")
	var all sync.WaitGroup
	for rank, dev := range r.devs {
		all.Go(func() {
			end, err := tcp.Join(t.Context(), tcp.Config{Rank: rank, Ranks: len(r.devs), Address: address, Token: "packed", Capacity: 1}, dev)
			if errs[rank] = err; err != nil {
				return
			}
			defer func() { _ = end.Close() }()
			own := cfg
			own.Spaces = runner.Spaces[kernels.Buffer](dev)
			own.Topology = runner.Topology[kernels.Buffer]{Ranks: len(r.devs), First: rank, Transport: func(int) transport.Transport[kernels.Buffer] { return end }}
			one, err := runner.New(own)
			if errs[rank] = err; err != nil {
				return
			}
			results[rank], errs[rank] = one.Step(t.Context(), len(p), p.source(r.devs[rank:rank+1], batch))
			_ = one.Close()
		})
	}
	all.Wait()
	for rank, err := range errs {
		require.NoError(t, err, "rank %d", rank)
		require.Equal(t, results[0].Losses, results[rank].Losses)
	}
	return r.numbers(results[0])
}

// TestPackedSequences compares a step of packed sequences with a step without packing, which has one sequence
// per microbatch in the order of runner.InOrder. In the same order the gradients are bitwise equal, and in any
// order the losses are. The test runs three schedules, on one to four ranks of one process or over sockets.
func TestPackedSequences(t *testing.T) {
	t.Parallel()
	steps := 1
	if *testkit.Long {
		steps = 5
	}
	for seed := range steps {
		batch := unevenBatch(uint64(31+seed), 32, 7, 1, 16, 4, 9, 3, 12, 16, 2, 5)
		plan := packs{{3, 1}, {0, 5, 8}, {7}, {2, 9, 4}, {6}}
		order := slices.Concat(plan...)
		one := newRig(t, small(), oneRank(schedule.DepthFirst, 3))
		alone := make(packs, len(batch))
		for n := range batch {
			alone[n] = []int{n}
		}
		result, err := one.runner.Step(t.Context(), len(batch), runner.InOrder(alone.source(one.devs, batch), [][]int{order}))
		require.NoError(t, err)
		want := one.numbers(result)
		one.close()
		for _, name := range []string{"1f1b", "interleaved", "zb-v"} {
			for _, ranks := range []int{1, 2, 4} {
				for _, sockets := range []bool{false, true} {
					if sockets && ranks == 1 {
						continue
					}
					t.Run(fmt.Sprintf("%d %s, %d ranks, sockets %v", seed, name, ranks, sockets), func(t *testing.T) {
						s, placement := plantest.Find(t, name, ranks, 0)
						v := variant{rule: s.Rule, placement: placement, capacity: 1, lookAhead: 1}
						requireSame(t, []numbers{want}, []numbers{plan.gradientsOf(t, v, sockets, batch)})
						if ranks == 2 && !sockets {
							backward := slices.Clone(plan)
							slices.Reverse(backward)
							other := backward.gradientsOf(t, v, false, batch)
							require.Equal(t, []uint64{want.sum, want.weight}, []uint64{other.sum, other.weight}, "loss in another order")
							require.NotEqual(t, want.tensors, other.tensors, "gradients depend on the order")
						}
					})
				}
			}
		}
	}
}
