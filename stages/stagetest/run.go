package stagetest

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// run is a runner over a trial's stages.
type run[T any] struct {
	trial   *trial[T]
	setting setting[T]
	runner  *runner.Runner[T]
	source  runner.Source[T]
	size    int // number of microbatches of the last step
	last    schedule.Action
}

// action is the runner's action hook.
func (x *run[T]) action(_ int, action schedule.Action) {
	x.last = action
	if x.setting.onAction != nil {
		x.setting.onAction(action)
	}
}

// panicked is the panic of a stage as an error.
type panicked struct{ value any }

func (p *panicked) Error() string { return fmt.Sprintf("it panics: %v", p.value) }

// step trains on m microbatches and returns the numbers. It reports the faults that cause no
// error.
func (x *run[T]) step(ctx context.Context, m int) (numbers, error) {
	return x.do(m, "", func() (*runner.Result, error) { return x.runner.Step(ctx, m, x.source) })
}

// evaluate runs m microbatches forward only.
func (x *run[T]) evaluate(ctx context.Context, m int) (numbers, error) {
	return x.do(m, ", evaluation", func() (*runner.Result, error) { return x.runner.Evaluate(ctx, m, x.source) })
}

func (x *run[T]) do(m int, what string, call func() (*runner.Result, error)) (n numbers, err error) {
	t := x.trial
	t.where = fmt.Sprintf("%s%s, %d microbatches", x.setting.name, what, m)
	if m == 1 {
		t.where = fmt.Sprintf("%s%s, 1 microbatch", x.setting.name, what)
	}
	t.faults, x.size = 0, m
	t.watch.reset()
	t.probe.reset()
	before, hasBook := x.live()

	result, err := x.protect(call)
	if t.watch.refusedHold {
		t.fault(SavesBorrowed, "it saves a tensor to which it has no reference of its own")
	}
	if t.watch.refusedRelease {
		t.fault(ReleasesBorrowed, "it releases a tensor to which it has no reference of its own")
	}
	if after, _ := x.live(); hasBook && after != before && err != nil {
		t.fault(AbortMatters, "%d bytes are left after a step that ended with an error: %v", after-before, err)
	}
	if err != nil {
		return numbers{}, err
	}
	n = numbers{digests: t.probe.digests, losses: result.Losses}
	for i := range t.params {
		if t.params[i].Contributes != batchctx.Frozen {
			n.digests[tensorKey{gradients, -1, i}] = t.digest(t.params[i].Grad)
		}
	}
	return n, nil
}

// protect converts a panic to an error. The runner has released everything by then.
func (x *run[T]) protect(call func() (*runner.Result, error)) (result *runner.Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{value}
		}
	}()
	return call()
}

// live returns the bytes in the allocator's book, if there is one.
func (x *run[T]) live() (int64, bool) {
	if book, ok := x.trial.subject.Space.(memory.Book); ok {
		return book.Live(), true
	}
	return 0, false
}
