package runner_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// tiedUses lists, for each stage of a model of four, the parameters that it uses: two of them have
// several uses. "table" is long enough to be divided over replicas, and "bias" belongs to one of them.
var tiedUses = [4][]string{{"table", "bias"}, {"table"}, {"own"}, {"bias", "table"}}

// tiedElements returns the number of elements of a parameter.
func tiedElements(name string) int {
	if name == "bias" {
		return 5
	}
	return 1 << 17
}

// contribution returns the number that a microbatch adds to an element of a use's gradient. Sums of contributions round
// differently in different orders.
func contribution(stage, microbatch, element int) float32 {
	return 1 / float32(3+(stage*31+microbatch*17+element*7)%1013)
}

// tiedTotals returns the gradient of each parameter, which a plain loop over replicas, microbatches and
// uses adds up in the order of L9.
func tiedTotals(replicas, microbatches int) map[string][]float32 {
	totals := map[string][]float32{}
	for s, names := range tiedUses {
		for _, name := range names {
			use := make([]float32, tiedElements(name))
			for i := range use {
				for replica := range replicas {
					var sum float32
					for m := replica; m < microbatches; m += replicas {
						sum += contribution(s, m, i)
					}
					if replica == 0 {
						use[i] = sum
					} else {
						use[i] += sum
					}
				}
			}
			if total := totals[name]; total == nil {
				totals[name] = use
			} else {
				for i := range total {
					total[i] += use[i]
				}
			}
		}
	}
	return totals
}

// tiedStage returns a stage that adds contributions to the gradients of its uses. Every use has its own weight and
// gradient, or the part of them that the replica has at its level.
func tiedStage(t *testing.T, dev *kernels.Host, s, replica int, replicas runner.Replicas) (stages.Stage[buffer], []batchctx.Use[buffer]) {
	var d stages.Decl[buffer]
	if s > 0 {
		d.Inputs("x")
	}
	var score batchctx.Loss
	if s < 3 {
		d.Outputs("x")
	} else {
		score = d.Loss("loss")
	}
	var uses []batchctx.Use[buffer]
	var params []batchctx.Param
	for _, name := range tiedUses[s] {
		n := tiedElements(name)
		alloc := func(level int) (b buffer) {
			_, count := runner.ShardRange[buffer](dev, name, n, replica, replicas.Count)
			if replicas.Count == 1 || replicas.Shard < level {
				count = n
			}
			if count > 0 {
				var err error
				b, err = dev.Alloc(memory.Resident, kernels.Float32, count)
				require.NoError(t, err)
				require.NoError(t, dev.Zero(b))
			}
			return b
		}
		use := batchctx.Use[buffer]{Name: name, Grad: alloc(2), Weight: alloc(3), Elements: n, Tied: s > 0}
		uses, params = append(uses, use), append(params, d.Use(use))
	}
	number := func(mb batchctx.Microbatch[buffer], class memory.Class, to []buffer) {
		for i := range to {
			to[i] = mb.Must(dev.Floats(class, 1))
		}
	}
	stage := d.Stage(fmt.Sprint("stage", s), func(_ context.Context, mb batchctx.Microbatch[buffer], _, out []buffer) error {
		for _, p := range params {
			mb.Weight(p)
		}
		number(mb, memory.Activation, out)
		if s == 3 {
			mb.Loss(score, 1, 1)
		}
		return nil
	}, func(_ context.Context, mb batchctx.Microbatch[buffer], _, gradIn []buffer) error {
		for _, p := range params {
			grad, _ := mb.Grad(p)
			sums := dev.Float32s(grad)
			for i := range sums {
				sums[i] += contribution(s, mb.Index(), i)
			}
		}
		if s == 3 {
			mb.LossSeed(score)
		}
		number(mb, memory.ActGrad, gradIn)
		return nil
	})
	return stage, uses
}

// TestEveryUseHasTheTotal trains a model with tied parameters on 1, 2 and 4 ranks, with 1, 2 and 4
// replicas, at every level. Every use, each with its own weight and gradient, has the total of a plain
// loop bit by bit, as far as the level leaves the gradient to its replica (L9).
func TestEveryUseHasTheTotal(t *testing.T) {
	const microbatches = 5
	for _, count := range []int{1, 2, 4} {
		want := tiedTotals(count, microbatches)
		for _, ranks := range []int{1, 2, 4} {
			for shard := range 4 {
				name := fmt.Sprintf("%d ranks, %d replicas, level %d", ranks, count, shard)
				cfg := runner.Config[buffer]{Topology: runner.Topology[buffer]{Ranks: ranks, Capacity: 1}, Replicas: runner.Replicas{Count: count, Shard: shard}}
				var hosts []*kernels.Host
				var all [][]batchctx.Use[buffer]
				for replica := range count {
					for range ranks {
						host, err := kernels.NewHost(kernels.HostConfig{Threads: 1})
						require.NoError(t, err)
						hosts = append(hosts, host)
					}
					for s := range tiedUses {
						stage, uses := tiedStage(t, hosts[replica*ranks+s%ranks], s, replica, cfg.Replicas)
						cfg.Stages, all = append(cfg.Stages, stage), append(all, uses)
					}
				}
				cfg.Spaces = runner.Spaces(hosts...)
				run := newRunner(t, cfg)
				none := runner.Indexed(func(context.Context, batchctx.Entry[buffer]) error { return nil })
				runStep(t, run, microbatches, none)
				for i, uses := range all {
					replica, s := i/len(tiedUses), i%len(tiedUses)
					for _, use := range uses {
						dev := hosts[replica*ranks+s%ranks]
						first, n := 0, use.Elements
						if count > 1 && shard > 0 {
							first, n = runner.ShardRange[buffer](dev, use.Name, use.Elements, replica, count)
						}
						if n == 0 {
							continue
						}
						grad := dev.Float32s(use.Grad)
						if len(grad) > n {
							grad = grad[first:][:n]
						}
						same := slices.EqualFunc(want[use.Name][first:][:n], grad, func(a, b float32) bool {
							return math.Float32bits(a) == math.Float32bits(b)
						})
						require.True(t, same, "%s: %q of stage %d in replica %d", name, use.Name, s, replica)
					}
				}
				require.NoError(t, run.Close())
				for _, host := range hosts {
					require.NoError(t, host.Close())
				}
			}
		}
	}
}

// TestTiesAreDeclared builds models in which two uses share a name: New refuses them unless the tie is
// declared, and the sizes and the types of the uses are equal (L9).
func TestTiesAreDeclared(t *testing.T) {
	type use = batchctx.Use[buffer]
	dev, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	alloc := func(dtype kernels.DType, n int) buffer {
		b, err := dev.Alloc(memory.Resident, dtype, n)
		require.NoError(t, err)
		return b
	}
	grad := func(n int) buffer { return alloc(kernels.Float32, n) }
	twice := `stage 0 (first) and stage 1 (last) both have a parameter "w": give them different names, or declare all but one use of a tied parameter with Decl.TiedParam`
	for name, c := range map[string]struct {
		first, last []use
		says        string
	}{
		"one name":            {[]use{{Name: "w", Grad: grad(2)}}, []use{{Name: "w", Grad: grad(2)}}, twice},
		"one name and a size": {[]use{{Name: "w", Grad: grad(2)}}, []use{{Name: "w", Grad: grad(3)}}, twice},
		"one of them frozen":  {[]use{{Name: "w", Grad: grad(2), Contributes: batchctx.Frozen}}, []use{{Name: "w", Grad: grad(2)}}, twice},
		"twice in a stage": {[]use{{Name: "w", Grad: grad(2)}, {Name: "w", Grad: grad(2)}}, nil,
			`stage 0 (first) and stage 0 (first) both have a parameter "w"`},
		"two of three": {[]use{{Name: "w", Grad: grad(2), Tied: true}, {Name: "w", Grad: grad(2)}}, []use{{Name: "w", Grad: grad(2)}}, twice},
		"sizes": {[]use{{Name: "w", Grad: grad(2)}}, []use{{Name: "w", Grad: grad(3), Tied: true}},
			`the gradient of the tied parameter "w" is 8 bytes of float32 in stage 0 (first) and 12 bytes of float32 in stage 1 (last): give every use the same size and type`},
		"types": {[]use{{Name: "w", Grad: grad(2)}}, []use{{Name: "w", Grad: alloc(kernels.Int32, 2), Tied: true}},
			`8 bytes of float32 in stage 0 (first) and 8 bytes of int32 in stage 1 (last)`},
		"types of weights": {[]use{{Name: "w", Grad: grad(2), Weight: grad(2)}}, []use{{Name: "w", Grad: grad(2), Weight: alloc(kernels.Int32, 2), Tied: true}},
			`the weight of the tied parameter "w" is 8 bytes of float32`},
		"elements": {[]use{{Name: "w", Grad: grad(2), Elements: 2}}, []use{{Name: "w", Grad: grad(2), Elements: 3, Tied: true}},
			`the tied parameter "w" has 2 elements in stage 0 (first) and 3 in stage 1 (last)`},
		"declared in the last": {[]use{{Name: "w", Grad: grad(2)}}, []use{{Name: "w", Grad: grad(2), Tied: true}}, ""},
		"declared in both":     {[]use{{Name: "w", Grad: grad(2), Tied: true}}, []use{{Name: "w", Grad: grad(2), Tied: true}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var first, last stages.Decl[buffer]
			first.Outputs("x")
			last.Inputs("x")
			last.Loss("loss")
			for _, u := range c.first {
				first.Use(u)
			}
			for _, u := range c.last {
				last.Use(u)
			}
			run, err := runner.New(runner.Config[buffer]{
				Stages: []stages.Stage[buffer]{first.Stage("first", nil, nil), last.Stage("last", nil, nil)}, Spaces: runner.Spaces(dev),
			})
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.NoError(t, run.Close())
		})
	}
}
