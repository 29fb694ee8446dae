package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages/transformer"
)

// options are the flags of a run.
type options struct {
	data         string
	steps        int
	microbatches int
	sequence     int // most tokens in a microbatch
	stages       int
	plan         string
	group        int
	model        transformer.Config
	tied         bool // the head uses the embedding's table
	optimizer    transformer.AdamW
	warmup       int     // steps in which the learning rate rises
	clip         float64 // largest norm of the gradient, 0 for any
	evaluate     int     // steps between evaluations, 0 for only the first and the last
	checkpoint   string
	resume       string
	folder       string
	json         string

	set   *flag.FlagSet   // over the fields above
	given map[string]bool // the flags that were on the command line
}

// defaults are the settings of a run without flags: about a minute on two cores.
func defaults() *options {
	return &options{
		steps:        800,
		microbatches: 64,
		sequence:     32,
		stages:       4,
		plan:         "depth-first",
		group:        1,
		model: transformer.Config{
			Vocabulary: 256, Width: 48, Layers: 2, Heads: 4, Seed: 1,
		},
		optimizer: transformer.AdamW{
			LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1,
		},
		warmup:   20,
		clip:     1,
		evaluate: 100,
	}
}

// flags returns the command line's flags, which write into o.
func (o *options) flags() *flag.FlagSet {
	f := flag.NewFlagSet("train", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.StringVar(&o.data, "data", o.data, "text to train on, a `file or folder`; default: a text of the Go installation")
	f.IntVar(&o.steps, "steps", o.steps, "optimizer steps")
	f.IntVar(&o.microbatches, "microbatches", o.microbatches, "microbatches of a step")
	f.IntVar(&o.sequence, "seq", o.sequence, "most bytes of text in a microbatch")
	f.IntVar(&o.stages, "stages", o.stages, "pipeline stages that the model is cut into")
	f.StringVar(&o.plan, "plan", o.plan, "order of a step: depth-first or breadth-first")
	f.IntVar(&o.group, "group", o.group, "microbatches that run together under -plan depth-first")
	f.IntVar(&o.model.Width, "width", o.model.Width, "width of the model")
	f.IntVar(&o.model.Layers, "layers", o.model.Layers, "transformer blocks")
	f.IntVar(&o.model.Heads, "heads", o.model.Heads, "attention heads; they divide the width")
	f.BoolVar(&o.tied, "tied", o.tied, "use the embedding's table in the head too")
	f.Var((*float32Value)(&o.model.Dropout), "dropout", "`probability` of dropping an activation")
	f.BoolVar(&o.model.Recompute, "recompute", o.model.Recompute, "keep only the input of a block and compute the rest again in its backward")
	f.Uint64Var(&o.model.Seed, "seed", o.model.Seed, "seed of weights, microbatches and dropout")
	f.Var((*float32Value)(&o.optimizer.LearningRate), "lr", "peak learning `rate`")
	f.Var((*float32Value)(&o.optimizer.WeightDecay), "decay", "weight decay `factor`")
	f.IntVar(&o.warmup, "warmup", o.warmup, "steps in which the learning rate rises to its peak")
	f.Float64Var(&o.clip, "clip", o.clip, "largest norm of the gradient, 0 for any")
	f.IntVar(&o.evaluate, "evaluate", o.evaluate, "steps between evaluations on held-out text; 0: only before the first step and after the last")
	f.StringVar(&o.checkpoint, "checkpoint", o.checkpoint, "`file` to write weights and moments to at the end (safetensors)")
	f.StringVar(&o.resume, "resume", o.resume, "checkpoint `file` to go on from")
	f.StringVar(&o.folder, "run", o.folder, "`folder` for the memory log, the losses and the page; default: a new one in runs/")
	f.StringVar(&o.json, "json", o.json, "`file` for a summary in JSON; - is standard output")
	return f
}

// parse reads the command line. The error is flag.ErrHelp where help is asked for.
func parse(args []string) (*options, error) {
	o := defaults()
	o.set = o.flags()
	f := o.set
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w (-help lists the flags)", err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag: text is given with -data (-help lists the flags)", f.Arg(0))
	}
	o.given = make(map[string]bool)
	f.Visit(func(f *flag.Flag) { o.given[f.Name] = true })
	return o, nil
}

// usage writes the flags to w.
func usage(w io.Writer) {
	o := defaults()
	f := o.flags()
	f.SetOutput(w)
	fmt.Fprintln(w, "usage: go run ./examples/train [flags]")
	f.PrintDefaults()
}

// validate reports every fault of the options, and what to do about it. It sets
// what follows from other options.
func (o *options) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, number := range []struct {
		flag         string
		value, least int
	}{
		{"steps", o.steps, 1}, {"microbatches", o.microbatches, 1}, {"seq", o.sequence, 2}, {"stages", o.stages, 1},
		{"group", o.group, 1}, {"width", o.model.Width, 1}, {"layers", o.model.Layers, 1}, {"heads", o.model.Heads, 1},
		{"warmup", o.warmup, 0}, {"evaluate", o.evaluate, 0},
	} {
		if number.value > schedule.MaxMicrobatches {
			fault("-%s is %d: give at most %d", number.flag, number.value, schedule.MaxMicrobatches)
		}
		if number.value < number.least {
			fault("-%s is %d: give at least %d", number.flag, number.value, number.least)
		}
	}
	if w, h := o.model.Width, o.model.Heads; w > 0 && h > 0 && w%h != 0 {
		fault("-width %d does not divide into -heads %d: take -width %d or -width %d", w, h, max(w/h, 1)*h, (w/h+1)*h)
	}
	if most := o.model.Layers + 2; o.stages > most && most > 2 {
		fault("-stages %d is more than -layers %d has parts for: take at most %d, the embedding, the blocks and the head", o.stages, o.model.Layers, most)
	}
	if need := o.modelBytes(); need > mostModel {
		fault("the model needs %.1f GiB, at most %d are for it: take a smaller -width or -seq, or fewer -layers", need/(1<<30), mostModel>>30)
	}
	if o.json != "" && o.json != "-" {
		for flag, path := range map[string]string{"checkpoint": o.checkpoint, "resume": o.resume} {
			if path != "" && filepath.Clean(path) == filepath.Clean(o.json) {
				fault("-json and -%s name the same file: give -json another", flag)
			}
		}
	}
	if _, ok := rules[o.plan]; !ok {
		fault("-plan %q is unknown: take depth-first or breadth-first", o.plan)
	} else if o.plan != "depth-first" && o.group != 1 {
		fault("-group goes with -plan depth-first only")
	}
	if p := o.model.Dropout; !(p >= 0 && p < 1) {
		fault("-dropout is %g: give at least 0 and less than 1", p)
	}
	if !(o.optimizer.LearningRate > 0) {
		fault("-lr is %g: give more than 0", o.optimizer.LearningRate)
	}
	if !(o.optimizer.WeightDecay >= 0) {
		fault("-decay is %g: give at least 0", o.optimizer.WeightDecay)
	}
	if !(o.clip >= 0) {
		fault("-clip is %g: give at least 0", o.clip)
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	o.model.Context, o.model.Untied = o.sequence, !o.tied
	return o.model.Validate()
}

// mostModel is the most bytes of weights, gradients and moments that a run takes up.
const mostModel = 4 << 30

// modelBytes estimates the bytes of weights, gradients and moments. It is a
// float64 so that it cannot overflow.
func (o *options) modelBytes() float64 {
	width := float64(o.model.Width)
	elements := width * (2*float64(o.model.Vocabulary) + float64(o.sequence) + float64(o.model.Layers)*(12*width+13))
	return 4 * 4 * elements
}

// describe is the model and the plan in one line.
func (o *options) describe() string {
	parts := []string{
		fmt.Sprintf("width %d, %d blocks, %d heads", o.model.Width, o.model.Layers, o.model.Heads),
		fmt.Sprintf("%d stages, %s", o.stages, o.plan),
	}
	if o.stages == 1 {
		parts[1] = "1 stage, " + o.plan
	}
	if o.group > 1 {
		parts[1] += fmt.Sprintf(" in groups of %d", o.group)
	}
	if o.tied {
		parts = append(parts, "tied tables")
	}
	if o.model.Recompute {
		parts = append(parts, "recompute")
	}
	if o.model.Dropout > 0 {
		parts = append(parts, fmt.Sprintf("dropout %g", o.model.Dropout))
	}
	parts = append(parts, fmt.Sprintf("%d microbatches of up to %d bytes a step", o.microbatches, o.sequence))
	return strings.Join(parts, ", ")
}
