package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/costs"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/terminal"
)

// emitCosts measures the costs of the model's stages, and writes them to the file.
func emitCosts(ctx context.Context, opts *options, stdout, stderr io.Writer) (err error) {
	if err := errors.Join(opts.validate(), job.Flag("emit-costs", atomicfile.CheckFile(opts.emitCosts))); err != nil {
		return err
	}
	data, err := readData(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	measured, names, misfit, err := measureCosts(ctx, opts, data.training)
	if err == nil {
		err = addResident(opts, measured)
	}
	if err != nil {
		return err
	}
	people, file := terminal.Writer(stdout), opts.emitCosts
	err = atomicfile.Emit(file, stdout, func(w io.Writer) error { return simulate.WriteCosts(w, measured) })
	if file == "-" {
		people, file = terminal.Writer(stderr), "FILE"
	}
	if opts.lengths {
		fmt.Fprintf(people, "Costs of each token and of each squared length, from four lengths; a measured one is at most %.0f %% off.\n\n", 100*misfit)
	}
	fmt.Fprintf(people, "Medians over %s microbatches of up to %d %ss; sizes of one of %[2]d %[3]ss.\n\n",
		units.Count(int64(measuredSteps*min(opts.Microbatches, measuredMicrobatches))), opts.sequence, opts.unit())
	if err := errors.Join(err, costs.Table(people, measured.AtSize(lengths.Of(opts.sequence)), names)); err != nil {
		return err
	}
	if n := opts.identities(); n > 0 {
		fmt.Fprintf(people, "%d of the %d stages only pass on their inputs; -layers %d gives each a part of the model.\n", n, opts.Stages, opts.Stages-2)
	}
	ranks := opts.Ranks
	if ranks == 1 {
		ranks = max(len(names)/2, 1)
	}
	if opts.lengths {
		_, err = fmt.Fprintf(people, "\nTo train with them:  go run ./examples/train -lengths -pack %d -costs %s, and the flags of the model and of the plan\n", 2*opts.sequence, file)
		return err
	}
	_, err = fmt.Fprintf(people, "\nTo choose a plan:  go run ./cmd/weir choose --costs %s --ranks %d --microbatches %d -o best.json\nTo train with it:  go run ./examples/train -plan best.json, and the flags of the model\n", file, ranks, opts.Microbatches)
	return err
}

// The number of measured steps, and the maximum number of their microbatches.
const (
	measuredSteps        = 5
	measuredMicrobatches = 64
)

// measureCosts measures the stages on one device, with the microbatches of a run, and also
// returns their names. With -lengths it measures several lengths, and returns the misfit: the
// largest relative error of the costs at one of them.
func measureCosts(ctx context.Context, opts *options, training corpus.Sequence) (measured *simulate.Costs, names []string, misfit float64, err error) {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	model, err := transformer.New(dev, opts.model, opts.Placement.Depth())
	if err != nil {
		return nil, nil, 0, tooLarge(err)
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	for _, stage := range model.Stages() {
		names = append(names, stage.Spec().Name)
	}
	cfg := costs.Config[kernels.Buffer]{
		Runner: runner.Config[kernels.Buffer]{
			Stages: model.Stages(), Spaces: runner.Spaces(dev), Gradients: dev, Losses: lossDefs, Seed: opts.model.Seed,
		},
		Source: func(step int) runner.Source[kernels.Buffer] {
			return &source{dev, corpus.Reader{Sequence: training, Windows: opts.drawn(training, step), Vocabulary: opts.model.Vocabulary}, nil}
		},
		Largest: tiled(dev, opts, training, opts.sequence),
		Steps:   measuredSteps, Microbatches: min(opts.Microbatches, measuredMicrobatches),
	}
	if opts.lengths {
		var sizes []costs.Sized[kernels.Buffer]
		for _, length := range [...]int{opts.sequence, opts.sequence / 2, opts.sequence / 4, opts.sequence / 16} {
			sizes = append(sizes, costs.Sized[kernels.Buffer]{Size: lengths.Of(length), Source: tiled(dev, opts, training, length)})
		}
		measured, misfit, err = costs.MeasureLengths(ctx, cfg, sizes)
	} else {
		measured, err = costs.Measure(ctx, cfg)
	}
	if err != nil {
		return nil, nil, 0, err
	}
	latency, perMiB, err := costs.Hops(ctx)
	measured.Latency, measured.PerMiB = latency.Nanoseconds(), perMiB.Nanoseconds()
	return measured, names, misfit, err
}

// tiled returns microbatches of one length.
func tiled(dev kernels.Device, opts *options, training corpus.Sequence, length int) *source {
	windows := &corpus.Tiled{Size: training.Len(), Length: length, Most: measuredMicrobatches}
	return &source{dev, corpus.Reader{Sequence: training, Windows: windows, Vocabulary: opts.model.Vocabulary}, nil}
}

// addResident adds the resident memory of the model to each stage: a device for each stage
// measures it exactly. A table that two stages share is counted for both.
func addResident(opts *options, measured *simulate.Costs) (err error) {
	places := make([]kernels.Compute, len(measured.Stages))
	for stage := range places {
		dev, failed := kernels.NewHost(kernels.HostConfig{})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		places[stage] = dev
	}
	model, err := transformer.NewOn(opts.model, places)
	if err != nil {
		return err
	}
	for stage, dev := range places {
		measured.Stages[stage].Resident = dev.Live()
	}
	return model.Close()
}

// emitProfile writes the allocations of the model's stages to the file.
func emitProfile(ctx context.Context, opts *options, stdout io.Writer) (err error) {
	if err := errors.Join(opts.validate(), job.Flag("emit-profile", atomicfile.CheckFile(opts.emitProfile))); err != nil {
		return err
	}
	data, err := readData(ctx, opts)
	if err != nil {
		return err
	}
	t := newTrainer(opts)
	t.data = data
	defer func() { err = errors.Join(err, t.Close()) }()
	if err := t.Build(ctx); err != nil {
		return err
	}
	err = atomicfile.Emit(opts.emitProfile, stdout, func(w io.Writer) error { return layout.Write(w, t.profile) })
	if err != nil || opts.emitProfile == "-" {
		return err
	}
	_, err = fmt.Fprintf(terminal.Writer(stdout), "To plan the memory of a step:  go run ./cmd/weir mem plan %s --profile %s --envelope --ranks %d --stages %d --microbatches %d\n",
		opts.Plan, opts.emitProfile, opts.Ranks, opts.Placement.Depth(), opts.Microbatches)
	return err
}
