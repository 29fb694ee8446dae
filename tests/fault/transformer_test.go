package fault_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/transformer"
)

// device is the host with an event at every allocation.
type device struct {
	kernels.Compute
	events *events
}

func (d *device) Alloc(class memory.Class, dtype kernels.DType, n int) (kernels.Buffer, error) {
	if err := d.events.happen(atAlloc); err != nil {
		return kernels.Buffer{}, err
	}
	return d.Compute.Alloc(class, dtype, n)
}

// language is a runner over the stages of package transformer.
type language struct {
	t      testing.TB
	events events
	dev    *device
	model  *transformer.Model
	runner *runner.Runner[kernels.Buffer]
}

func newLanguage(t testing.TB, rule schedule.Rule, count int, recompute bool) *language {
	l := &language{t: t}
	l.events.plan(-1, returns, nil)
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 16 << 20})
	require.NoError(t, err)
	l.dev = &device{host, &l.events}
	l.model, err = transformer.New(l.dev, transformer.Config{
		Vocabulary: 16, Width: 8, Layers: 2, Heads: 2, Context: 8, Dropout: 0.1, Recompute: recompute, Seed: 1,
	}, count)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, l.model.Close())
		require.Zero(t, host.Live())
		require.NoError(t, host.Close())
	})
	var watched []stages.Stage[kernels.Buffer]
	for _, stage := range l.model.Stages() {
		watched = append(watched, watch(&l.events, stage))
	}
	l.runner, err = runner.New(runner.Config[kernels.Buffer]{
		Stages: watched, Spaces: runner.Spaces(l.dev),
		Losses:    []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Gradients: l.dev, Seed: 3,
		Hooks: runner.Hooks{Action: func(_ int, a schedule.Action) {
			l.events.action = a
			_ = l.events.happen(atAction)
		}},
		Plan: runner.Plan{Rule: rule, LookAhead: 1},
	})
	require.NoError(t, err)
	return l
}

func (l *language) step(ctx context.Context, m int) (*runner.Result, error) {
	return l.runner.Step(ctx, m, runner.Indexed(func(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
		if err := l.events.happen(atSource); err != nil {
			return err
		}
		k := entry.Index()
		n := 3 + 2*(k%3)
		ids, weights := make([]int32, n), make([]float32, n)
		for i := range ids {
			ids[i], weights[i] = int32((3*k+5*i)%16), float32(1+i%2)
		}
		transformer.Put(l.dev, entry, ids, ids, weights)
		return nil
	}))
}

// updateAndRead updates the weights and reads all of them.
func (l *language) updateAndRead(result *runner.Result, err error) []any {
	l.t.Helper()
	require.NoError(l.t, err)
	require.NoError(l.t, l.model.Update(transformer.AdamW{LearningRate: 0.01}, result, 1))
	all := []any{result.Losses, result.GradNorm, result.Peak, result.Live}
	for _, p := range l.model.Parameters() {
		x := make([]float32, p.Weight.N)
		require.NoError(l.t, l.dev.ReadFloat32(x, p.Weight))
		all = append(all, x)
	}
	return all
}

func (l *language) clean(m int) []any {
	l.events.plan(-1, returns, nil)
	return l.updateAndRead(l.step(context.Background(), m))
}

func (l *language) book() book { return bookOf(l.dev, nil) }

// TestTransformer is TestEveryEvent for the stages of package transformer, with a sample of the
// faults: at every third event, one kind of fault in rotation.
func TestTransformer(t *testing.T) {
	const m = 3
	for _, c := range []struct {
		name      string
		rule      schedule.Rule
		stages    int
		recompute bool
	}{
		{"depth-first", schedule.DepthFirst, 4, false},
		{"depth-first in one stage, recompute", schedule.DepthFirst, 1, true},
		{"breadth-first in two stages, recompute", schedule.BreadthFirst, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken, intact := newLanguage(t, c.rule, c.stages, c.recompute), newLanguage(t, c.rule, c.stages, c.recompute)
				require.Equal(t, intact.clean(m), broken.clean(m))
				log, actions := slices.Clone(intact.events.log), intact.events.actions()
				tried := 0
				for target := 0; target < len(log); target += 3 {
					at, f := log[target], fault(target/3%int(numFaults))
					if f == returns && !at.place.fails() {
						f = panics
					}
					if f == cancels && at.action == actions[len(actions)-1] {
						continue
					}
					before := broken.book()
					e := broken.events.provoke(target, f, func(ctx context.Context) (*runner.Result, error) { return broken.step(ctx, m) })
					broken.events.require(t, e, actions)
					requireReleased(t, before, broken.book())
					require.Equal(t, intact.clean(m), broken.clean(m), fmt.Sprintf("after %v at event %d, %v", f, target, at))
					require.Equal(t, log, broken.events.log)
					tried++
				}
				require.Greater(t, tried, len(log)/4)
			})
		})
	}
}
