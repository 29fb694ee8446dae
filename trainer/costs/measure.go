package costs

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Config configures a measurement.
type Config[T any] struct {
	// Runner is the configuration for training on one rank. Its space must be a memory.Book, and
	// it must have neither a plan nor hooks. If a stage does not split its backward, only its B
	// is measured, not I and W.
	Runner runner.Config[T]
	// Source returns the microbatches of a training step.
	Source func(step int) runner.Source[T]
	// Largest yields a single microbatch of the largest size.
	Largest runner.Source[T]
	// Steps is the number of measured steps, and Microbatches the number of microbatches in each.
	// If 0, they default to 5 and 64. A warm-up step runs first and is not measured.
	Steps, Microbatches int
}

// Measure returns times in nanoseconds and sizes in bytes. Resident bytes, and the latency and
// bandwidth of links, are 0.
func Measure[T any](ctx context.Context, cfg Config[T]) (*simulate.Costs, error) {
	if cfg.Source == nil || cfg.Largest == nil {
		return nil, errors.New("costs: Source or Largest is nil: set both, to the microbatches of a step and to one of the largest size")
	}
	if len(cfg.Runner.Spaces) != 1 {
		return nil, fmt.Errorf("costs: there are %d Spaces: give the space of one rank", len(cfg.Runner.Spaces))
	}
	space := cfg.Runner.Spaces[0]
	book, ok := space.(memory.Book)
	if !ok {
		return nil, errors.New("costs: the space does not implement memory.Book")
	}
	if cfg.Steps == 0 {
		cfg.Steps = 5
	}
	if cfg.Microbatches == 0 {
		cfg.Microbatches = 64
	}
	c := costing[T]{Config: cfg, book: book}
	c.Runner.Stages = nil
	for _, stage := range cfg.Runner.Stages {
		m, metered := newMeter(stage, space)
		c.meters, c.Runner.Stages = append(c.meters, m), append(c.Runner.Stages, metered)
	}
	if err := c.times(ctx); err != nil {
		return nil, fmt.Errorf("costs: %w", err)
	}
	levels, err := c.levels(ctx)
	if err != nil {
		return nil, fmt.Errorf("costs: %w", err)
	}
	costs := &simulate.Costs{Unit: "ns", Scale: 1}
	for _, m := range c.meters {
		costs.Stages = append(costs.Stages, simulate.StageCosts{
			Quantize: m.nanoseconds(schedule.Quantize),
			F:        m.nanoseconds(schedule.F), I: m.nanoseconds(schedule.I), W: m.nanoseconds(schedule.W), B: m.nanoseconds(schedule.B),
			Output: m.output, Gradient: m.gradient,
		})
	}
	sizes(costs.Stages, levels)
	return costs, nil
}

// costing measures the stages of a model on one rank.
type costing[T any] struct {
	Config[T]
	book   memory.Book
	meters []*meter[T] // by stage
}

// splitDepthFirst is the depth-first schedule with each B replaced by I and W.
func splitDepthFirst(p schedule.Params) (*schedule.Plan, error) {
	plan, err := schedule.DepthFirst(p)
	if err != nil || p.Mode == schedule.ForwardOnly {
		return plan, err
	}
	return lower.Split(plan), nil
}

// times runs the steps, each with B and then with I and W, so that a temporarily slow machine
// affects both.
func (c *costing[T]) times(ctx context.Context) (err error) {
	var runs []*runner.Runner[T]
	for _, rule := range []schedule.Rule{schedule.DepthFirst, splitDepthFirst} {
		run, fault := c.run(rule, runner.Hooks{})
		if fault != nil {
			return fault
		}
		defer func() { err = errors.Join(err, run.Close()) }()
		runs = append(runs, run)
	}
	for step := range 1 + c.Steps {
		for _, m := range c.meters {
			m.counts = step > 0 // the first step is a warm-up
		}
		for _, run := range runs {
			if _, err := run.Step(ctx, c.Microbatches, c.Source(step)); err != nil {
				return err
			}
		}
	}
	return nil
}

// levels returns the live bytes before each action of a microbatch of the largest size, and
// after the last one.
func (c *costing[T]) levels(ctx context.Context) (levels []level, err error) {
	var stats memory.Stats
	look := func(_ int, action schedule.Action) {
		c.book.Stats(&stats)
		levels = append(levels, level{action, stats.Classes})
	}
	run, err := c.run(splitDepthFirst, runner.Hooks{Action: look})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	for _, m := range c.meters {
		m.counts = false
	}
	if _, err := run.Step(ctx, 1, c.Largest); err != nil {
		return nil, err
	}
	look(0, 0)
	return levels, nil
}

func (c *costing[T]) run(rule schedule.Rule, hooks runner.Hooks) (*runner.Runner[T], error) {
	cfg := c.Runner
	cfg.Plan.Rule, cfg.Hooks = rule, hooks
	return runner.New(cfg)
}

// Sized yields microbatches of one size.
type Sized[T any] struct {
	Size   lengths.Size
	Source runner.Source[T]
}

// MeasureLengths is Measure for microbatches of several sizes, at least three. It returns costs with rates per
// token and per squared length, and the largest relative deviation of a measured time or size from them.
// cfg.Source and cfg.Largest are ignored.
func MeasureLengths[T any](ctx context.Context, cfg Config[T], sources []Sized[T]) (*simulate.Costs, float64, error) {
	var sizes []lengths.Size
	var measured []*simulate.Costs
	for _, s := range sources {
		cfg.Source, cfg.Largest = func(int) runner.Source[T] { return s.Source }, s.Source
		one, err := Measure(ctx, cfg)
		if err != nil {
			return nil, 0, err
		}
		sizes, measured = append(sizes, s.Size), append(measured, one)
	}
	return simulate.FitLengths(sizes, measured)
}
