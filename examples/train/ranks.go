package main

import (
	"context"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
)

// runners run the steps of all ranks: a [runner.Group], or the runner of the only one.
type runners interface {
	Step(ctx context.Context, m int, sources []runner.Source[kernels.Buffer]) (*runner.Result, error)
	Evaluate(ctx context.Context, m int, sources []runner.Source[kernels.Buffer]) (*runner.Result, error)
	Prepare(ctx context.Context, m int, sources []runner.Source[kernels.Buffer]) (*layout.Plan, error)
	Rank(rank int) *runner.Runner[kernels.Buffer]
	Close() error
}

// alone is the runner of the only rank, which has no links to others and stays on the
// goroutine that it is called from.
type alone struct{ *runner.Runner[kernels.Buffer] }

func (a alone) Step(ctx context.Context, m int, sources []runner.Source[kernels.Buffer]) (*runner.Result, error) {
	return a.Runner.Step(ctx, m, sources[0])
}

func (a alone) Evaluate(ctx context.Context, m int, sources []runner.Source[kernels.Buffer]) (*runner.Result, error) {
	return a.Runner.Evaluate(ctx, m, sources[0])
}

func (a alone) Prepare(ctx context.Context, m int, sources []runner.Source[kernels.Buffer]) (*layout.Plan, error) {
	return a.Runner.Prepare(ctx, m, sources[0])
}

func (a alone) Rank(int) *runner.Runner[kernels.Buffer] { return a.Runner }

// newRunners makes the runners.
func newRunners(cfg runner.GroupConfig[kernels.Buffer]) (runners, error) {
	if len(cfg.Ranks) == 1 {
		only, err := runner.New(cfg.Ranks[0])
		if err != nil {
			return nil, err
		}
		return alone{only}, nil
	}
	group, err := runner.NewGroup(cfg)
	if err != nil {
		return nil, err
	}
	return group, nil
}
