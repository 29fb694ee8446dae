package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/units"
)

const (
	// Costs are measured over so many steps, after one that does not count, of so many
	// microbatches at most.
	measuredSteps        = 5
	measuredMicrobatches = 64
)

// emitCosts measures what the stages of the model cost, and writes it to the file.
func emitCosts(ctx context.Context, opts *options, stdout, stderr io.Writer) (err error) {
	if err := errors.Join(opts.validate(), writable("emit-costs", opts.emitCosts)); err != nil {
		return err
	}
	data, err := readText(ctx, opts.data)
	if err != nil {
		return err
	}
	training, _, err := split(data, opts.sequence)
	if err != nil {
		return err
	}
	c, err := newCosting(opts, training)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	costs, err := c.measure(ctx)
	if err == nil {
		err = addResident(opts, costs)
	}
	if ctx.Err() != nil {
		return errBefore
	}
	if err != nil {
		return err
	}
	people := stdout
	if opts.emitCosts == "-" {
		err, people = schedule.WriteCosts(stdout, costs), stderr
	} else {
		err = writeFile(opts.emitCosts, func(w io.Writer) error { return schedule.WriteCosts(w, costs) })
	}
	return errors.Join(err, c.table(people, costs))
}

// addResident adds what the model takes up of each stage: a device for each tells it
// to the byte. A table that two stages share is counted with both.
func addResident(opts *options, costs *schedule.Costs) (err error) {
	devs, places := make([]*kernels.Host, len(costs.Stages)), make([]kernels.Compute, len(costs.Stages))
	defer func() {
		for _, dev := range devs {
			if dev != nil {
				err = errors.Join(err, dev.Close())
			}
		}
	}()
	for stage := range devs {
		if devs[stage], err = kernels.NewHost(kernels.HostConfig{}); err != nil {
			return err
		}
		places[stage] = devs[stage]
	}
	model, err := transformer.NewOn(opts.model, places)
	if err != nil {
		return err
	}
	for stage, dev := range devs {
		costs.Stages[stage].Resident = dev.Live()
	}
	return model.Close()
}

// costing measures the stages of a model on one device.
type costing struct {
	opts     *options
	training []byte
	dev      *kernels.Host
	model    *transformer.Model
	meters   []*meter // the stages
}

func newCosting(opts *options, training []byte) (*costing, error) {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return nil, err
	}
	model, err := transformer.New(dev, opts.model, opts.placement.Depth())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: take a smaller -width or fewer -layers", err), dev.Close())
	}
	c := &costing{opts: opts, training: training, dev: dev, model: model}
	for _, stage := range model.Stages() {
		c.meters = append(c.meters, newMeter(stage, dev))
	}
	return c, nil
}

func (c *costing) close() error { return errors.Join(c.model.Close(), c.dev.Close()) }

// measure measures times over the microbatches of some steps, with whole and with split
// backwards, and sizes with one microbatch of the largest size.
func (c *costing) measure(ctx context.Context) (*schedule.Costs, error) {
	if err := c.times(ctx, schedule.DepthFirst, apart); err != nil {
		return nil, err
	}
	costs := &schedule.Costs{Unit: "ns", Scale: 1, Stages: make([]schedule.StageCosts, len(c.meters))}
	for s, m := range c.meters {
		costs.Stages[s] = schedule.StageCosts{
			Quantize: m.nanoseconds(schedule.Quantize),
			F:        m.nanoseconds(schedule.F), I: m.nanoseconds(schedule.I), W: m.nanoseconds(schedule.W), B: m.nanoseconds(schedule.B),
		}
	}
	levels, err := c.levels(ctx)
	if err != nil {
		return nil, err
	}
	for s, m := range c.meters {
		costs.Stages[s].Output, costs.Stages[s].Gradient = m.output, m.gradient
	}
	sizes(costs.Stages, levels)
	latency, perMiB, err := measureHops(ctx)
	costs.Latency, costs.PerMiB = latency.Nanoseconds(), perMiB.Nanoseconds()
	return costs, err
}

// apart is depth first with I and W in place of each B.
func apart(p schedule.Params) (*schedule.Plan, error) {
	plan, err := schedule.DepthFirst(p)
	if err != nil || p.Mode == schedule.ForwardOnly {
		return plan, err
	}
	return schedule.Split(plan), nil
}

// times runs steps on the microbatches that a training run would have, each by every
// rule in turn, so that a machine that is slow for a while is so for all of them.
func (c *costing) times(ctx context.Context, rules ...schedule.Rule) error {
	runs := make([]*runner.Runner[kernels.Buffer], len(rules))
	for i, rule := range rules {
		var err error
		if runs[i], err = c.runner(rule, runner.Hooks{}); err != nil {
			return err
		}
	}
	for step := range 1 + measuredSteps {
		for _, m := range c.meters {
			m.counts = step > 0 // the first one warms up
		}
		for _, run := range runs {
			windows := &corpus.Drawn{Text: c.training, Longest: c.opts.sequence, Seed: c.opts.model.Seed, Step: int64(step)}
			if _, err := run.Step(ctx, c.microbatches(), &source{dev: c.dev, text: c.training, windows: windows}); err != nil {
				return err
			}
		}
	}
	for _, run := range runs {
		if err := run.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (c *costing) microbatches() int { return min(c.opts.microbatches, measuredMicrobatches) }

// levels returns what is live before each action of a microbatch of the largest size,
// and after the last one.
func (c *costing) levels(ctx context.Context) ([]actionSample, error) {
	var levels []actionSample
	var stats memory.Stats
	look := func(_ int, action schedule.Action) {
		c.dev.Stats(&stats)
		levels = append(levels, actionSample{action, stats.Classes})
	}
	run, err := c.runner(apart, runner.Hooks{Action: look})
	if err != nil {
		return nil, err
	}
	for _, m := range c.meters {
		m.counts = false
	}
	largest := &corpus.Tiled{Size: len(c.training), Length: c.opts.sequence, Most: 1}
	if _, err := run.Step(ctx, 1, &source{dev: c.dev, text: c.training, windows: largest}); err != nil {
		return nil, err
	}
	look(0, 0)
	return levels, run.Close()
}

func (c *costing) runner(rule schedule.Rule, hooks runner.Hooks) (*runner.Runner[kernels.Buffer], error) {
	cfg := runner.Config[kernels.Buffer]{
		Space: c.dev, Gradients: c.dev, Plan: rule, Parts: transformer.Parts,
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		Hooks:  hooks, Seed: c.opts.model.Seed,
	}
	for _, m := range c.meters {
		cfg.Stages = append(cfg.Stages, m)
	}
	return runner.New(cfg)
}

// table writes the costs for people, and what to do with them.
func (c *costing) table(w io.Writer, costs *schedule.Costs) error {
	fmt.Fprintf(w, "Medians over %s microbatches of up to %d bytes; sizes of one of %[2]d bytes.\n\n",
		units.Count(int64(measuredSteps*c.microbatches())), c.opts.sequence)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "stage\tpart\tQUANTIZE\tF\tI\tW\tB\toutput\tgradient\tsaved\tfreed by I\tcarry\tresident")
	for i, s := range costs.Stages {
		fmt.Fprintf(t, "%d\t%s", i, c.meters[i].Spec().Name)
		for _, time := range [...]int64{s.Quantize, s.F, s.I, s.W, s.B} {
			fmt.Fprintf(t, "\t%s", units.Seconds(costs.Units(time)*secondsOf[costs.Unit]))
		}
		for _, size := range [...]int64{s.Output, s.Gradient, s.Saved, s.FreedByI, s.Carry, s.Resident} {
			fmt.Fprintf(t, "\t%s", units.Size(size))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	ranks, name := c.opts.ranks, c.opts.emitCosts
	if name == "-" {
		name = "FILE"
	}
	if ranks == 1 {
		ranks = max(len(costs.Stages)/2, 1)
	}
	fmt.Fprintf(w, "\nA hop between ranks takes %v, and %v more for a MiB.\n", time.Duration(costs.Latency), time.Duration(costs.PerMiB))
	if n := c.opts.relays(); n > 0 {
		fmt.Fprintf(w, "%d of the %d stages only hand on what they get; -layers %d gives each a part.\n", n, c.opts.stages, c.opts.stages-2)
	}
	_, err := fmt.Fprintf(w, "\nTo choose a plan:  go run ./cmd/weir choose --costs %s --ranks %d --microbatches %d\n", name, ranks, c.opts.microbatches)
	return err
}
