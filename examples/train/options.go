package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/job"
)

// options holds the flags of a run: the flags of every job, and the flags of this trainer.
type options struct {
	*job.Options
	data        string
	tokens      string // format of the tokens of data; empty for text
	steps       int
	sequence    int    // maximum number of tokens in a sequence
	lengths     bool   // sequences are whole documents
	pack        int    // maximum number of tokens in a microbatch of several sequences, 0 for one sequence each
	packer      string // who packs: weir or arrival
	device      string // host, cuda or cuda:N
	products    string // how a GPU multiplies float32 matrices
	plain       bool   // kernels are not launched as graphs
	model       transformer.Config
	fp8         string // the recipe, or none
	tied        bool   // the head uses the embedding's table
	optimizer   transformer.AdamW
	warmup      int     // steps in which the learning rate rises
	clip        float64 // maximum norm of the gradient, 0 for no limit
	evaluate    int     // steps between evaluations, 0 for only the first and the last
	emitCosts   string  // output file for costs
	emitProfile string  // output file for the profile
}

// packers are the values of -packer.
var packers = []string{"weir", "arrival"}

// A wide model needs a lower learning rate: at width 128, a run in float32 ends at 2.15 nats per
// byte with 0.01, and at 1.71 with 0.003.
const (
	wide     = 128
	wideRate = 3e-3
)

// defaults registers the flags and returns the default settings. A run with them takes about a
// minute on two cores.
func defaults() *options {
	f := flag.NewFlagSet("train", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	o := &options{Options: job.Flags(f), optimizer: transformer.AdamW{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}}
	f.StringVar(&o.data, "data", "", "text to train on, a `file or folder`; default: a text from the Go installation")
	f.StringVar(&o.tokens, "tokens", "", "`format` of the tokens in the file of -data: uint16 or uint32, low byte first, with the header of llm.c or without; default: -data is text, and its bytes are the tokens")
	f.IntVar(&o.model.Vocabulary, "vocabulary", 0, "number of different tokens; default: 256 for text, 50257 for -tokens uint16 (GPT-2), 128256 for uint32 (Llama 3)")
	f.IntVar(&o.steps, "steps", 800, "optimizer steps")
	f.IntVar(&o.sequence, "seq", 32, "maximum bytes or tokens of text in a microbatch")
	f.BoolVar(&o.lengths, "lengths", false, "train on whole documents of different lengths, the files of -data, by default Go's source; longer ones are cut into pieces of -seq. -microbatches is then the number of sequences in a step. With -emit-costs, measure the costs of each token and of each squared length")
	f.IntVar(&o.pack, "pack", 0, "maximum `tokens` in a microbatch, for -lengths: sequences share microbatches, and the costs from -costs decide which, and in which order; 0: one sequence in each")
	f.StringVar(&o.packer, "packer", packers[0], "who packs, for -pack: "+job.List(packers)+", which fills microbatches in the order of the sequences")
	f.StringVar(&o.device, "device", "host", "host, or cuda: an NVIDIA GPU for each rank, from number 0 or N (cuda:N) on; for programs that were built with -tags cuda")
	f.StringVar(&o.products, "products", products[0], "how a GPU multiplies matrices: "+job.List(products)+"; bfloat16 rounds the operands to it, for tensor cores; cublas is NVIDIA's library, if the system has it")
	f.BoolVar(&o.plain, "plain-launches", false, "launch each kernel of a GPU separately, instead of the kernels of an action as a graph")
	f.IntVar(&o.model.Width, "width", 48, "width of the model")
	f.IntVar(&o.model.Layers, "layers", 2, "transformer blocks")
	f.IntVar(&o.model.Heads, "heads", 4, "attention heads; they divide the width")
	f.BoolVar(&o.tied, "tied", false, "use the embedding's table also in the head")
	f.Var((*float32Value)(&o.model.Dropout), "dropout", "`probability` of dropping an activation")
	f.BoolVar(&o.model.Recompute, "recompute", false, "save only the input of a block, and compute the rest again in its backward")
	f.Func("keep-logits", "maximum `bytes` of logits that a microbatch keeps for its backward, such as 1MiB; -1: none, so that they are computed again; default 0: all logits if a step then fits -budget or, without a budget, if no rank needs over a fifth more memory, and otherwise none; with -unplanned none", func(text string) (err error) {
		if o.model.KeepLogits = transformer.NoLogits; text != "-1" {
			if o.model.KeepLogits, err = units.ParseSize(text); err != nil {
				err = fmt.Errorf("%w, or -1 for none", err)
			}
		}
		return err
	})
	f.StringVar(&o.fp8, "fp8", float32s, "`recipe` for computing the linear layers of the blocks in FP8: "+job.List(recipes())+fmt.Sprintf("; the width is then %d by default", fp8Width))
	f.BoolVar(&o.model.FP8Attention, "fp8-attention", false, "also keep queries, keys, values and the output of attention in FP8; its products stay float32")
	f.Uint64Var(&o.model.Seed, "seed", 1, "seed of weights, microbatches and dropout")
	f.Var((*float32Value)(&o.optimizer.LearningRate), "lr", fmt.Sprintf("peak learning `rate`; %v if the width is %d or more", wideRate, wide))
	f.Var((*float32Value)(&o.optimizer.WeightDecay), "decay", "weight decay `factor`")
	f.IntVar(&o.warmup, "warmup", 20, "steps in which the learning rate rises to its peak")
	f.Float64Var(&o.clip, "clip", 1, "maximum norm of the gradient, 0 for no limit")
	f.IntVar(&o.evaluate, "evaluate", 100, "steps between evaluations on held-out text; 0: only before the first step and after the last one")
	f.StringVar(&o.emitCosts, "emit-costs", "", "measure the costs of the stages, write them to a `file` for weir sim and weir choose, and exit")
	f.StringVar(&o.emitProfile, "emit-profile", "", "write the allocations of the stages to a `file` for weir mem plan, and exit")
	return o
}

// parse parses the command line. The error is flag.ErrHelp if help was requested.
func parse(args []string) (*options, error) {
	o := defaults()
	args = slices.Clone(args)
	for i, arg := range args {
		if name, _, _ := strings.Cut(arg, "="); name == "-emit-templates" || name == "--emit-templates" { // the former name of -emit-profile
			args[i] = strings.Replace(arg, "templates", "profile", 1)
		}
	}
	if err := o.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w (-help lists the flags)", err)
	}
	if o.FlagSet.NArg() > 0 {
		return o, fmt.Errorf("%q is not a flag: text is given with -data (-help lists the flags)", o.FlagSet.Arg(0))
	}
	return o, nil
}

// longest returns the maximum number of tokens in a microbatch.
func (o *options) longest() int { return max(o.sequence, o.pack) }

// usage writes the flags to w.
func usage(w io.Writer) {
	f := defaults().FlagSet
	f.SetOutput(w)
	fmt.Fprintln(w, "usage: go run ./examples/train [flags]")
	f.PrintDefaults()
}

// validate returns an error with every fault of the options and its remedy. It also sets options
// that follow from others.
func (o *options) validate() error {
	var faults []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	faults = append(faults, o.inFP8())
	if o.model.Width >= wide && !o.Given("lr") && o.Resume == "" {
		o.optimizer.LearningRate = wideRate
	}
	usual, known := map[string]int{"": 256, "uint16": 50257, "uint32": 128256}[o.tokens]
	refuse(!known, "-tokens is %q: give uint16 or uint32", o.tokens)
	refuse(known && o.tokens != "" && o.data == "", "-tokens needs a file: give -data")
	refuse(o.tokens == "" && o.Given("vocabulary") && o.model.Vocabulary != usual, "-vocabulary is for -tokens: leave it out")
	if !o.Given("vocabulary") && o.model.Vocabulary == 0 {
		o.model.Vocabulary = usual
	}
	faults = append(faults, job.Number("steps", o.steps, 1), job.Number("seq", o.sequence, 2),
		job.Number("width", o.model.Width, 1), job.Number("layers", o.model.Layers, 1), job.Number("heads", o.model.Heads, 1),
		job.Number("pack", o.pack, 0), job.Number("vocabulary", o.model.Vocabulary, 2), job.Number("warmup", o.warmup, 0), job.Number("evaluate", o.evaluate, 0))
	if w, h := o.model.Width, o.model.Heads; w > 0 && h > 0 {
		refuse(w%h != 0, "-width %d does not divide into -heads %d: take -width %d or -width %d", w, h, max(w/h, 1)*h, (w/h+1)*h)
	}
	if o.emitCosts != "" && o.Ranks > 1 && !o.lengths && !o.Given("plan") && !o.Given("stages") {
		o.Stages = 2 * o.Ranks // most plans need two stages per rank, and weir choose is next
	}
	parts := o.model.Layers + 2
	faults = append(faults, o.Validate(parts))
	refuse(o.Ranks == 1 && o.Stages > parts && parts > 2, "-stages %d is more than -layers %d has parts for: take at most %d, the embedding, the blocks and the head", o.Stages, o.model.Layers, parts)
	refuse(o.lengths && o.tokens != "", "-lengths needs files of text: leave out -tokens")
	refuse(!slices.Contains(packers, o.packer), "-packer is %q: give %s", o.packer, job.List(packers))
	refuse(o.Given("packer") && o.pack == 0, "-packer is for -pack: give it, or leave out -packer")
	refuse(o.pack > 0 && !o.lengths, "-pack needs -lengths")
	refuse(o.pack > 0 && o.pack < o.sequence, "-pack %d is less than -seq %d: give as much, so that every sequence fits", o.pack, o.sequence)
	refuse(o.pack > 0 && o.Costs == "" && o.emitCosts == "" && o.emitProfile == "", "-pack needs -costs: write them with -lengths -emit-costs FILE and the flags of the model")
	need := o.modelBytes()
	refuse(need > maxModel, "the model needs %.1f GiB, at most %d are for it: use a smaller -width or -seq, or fewer -layers", need/(1<<30), maxModel>>30)
	emits := o.emitCosts != "" || o.emitProfile != ""
	_, cuda, err := o.cudaNumber()
	faults = append(faults, err)
	refuse(cuda && emits, "-device cuda trains: leave out -emit-costs and -emit-profile")
	refuse(err == nil && !cuda && (o.products != products[0] || o.plain), "-products and -plain-launches are for -device cuda")
	refuse(!slices.Contains(products, o.products), "-products is %q: give %s", o.products, job.List(products))
	trains := o.Checkpoint != "" || o.Resume != "" || o.Folder != "" || o.JSON != ""
	refuse(o.emitCosts != "" && (trains || o.Costs != ""), "-emit-costs measures and does not train: leave out -checkpoint, -resume, -run, -json and -costs")
	refuse(o.emitProfile != "" && (trains || o.emitCosts != "" || o.Unplanned), "-emit-profile does not train: leave out -emit-costs, -checkpoint, -resume, -run, -json and -unplanned")
	refuse(emits && (o.Transport != "" || o.Replicas > 1), "-emit-costs and -emit-profile are for one process and one replica: leave out -transport and -replicas")
	refuse(!(o.model.Dropout >= 0 && o.model.Dropout < 1), "-dropout is %g: give at least 0 and less than 1", o.model.Dropout)
	refuse(!(o.optimizer.LearningRate > 0), "-lr is %g: give more than 0", o.optimizer.LearningRate)
	refuse(!(o.optimizer.WeightDecay >= 0), "-decay is %g: give at least 0", o.optimizer.WeightDecay)
	refuse(!(o.clip >= 0), "-clip is %g: give at least 0", o.clip)
	if err := errors.Join(faults...); err != nil {
		return err
	}
	o.model.Context, o.model.Untied = o.longest(), !o.tied
	o.model.Replicas, o.model.Shard = o.Replicas, o.Shard
	return o.model.Validate()
}

// tokenBytes are the sizes of a token by the format of -tokens.
var tokenBytes = map[string]int{"uint16": 2, "uint32": 4}

// unit returns the unit that a model predicts: byte or token.
func (o *options) unit() string {
	if o.tokens == "" {
		return "byte"
	}
	return "token"
}

// maxModel is the maximum number of bytes of weights, gradients and moments of a run.
const maxModel = 4 << 30

// modelBytes estimates the bytes of weights, gradients and moments, as a float64 because they
// may overflow an int.
func (o *options) modelBytes() float64 {
	width := float64(o.model.Width)
	elements := width * (2*float64(o.model.Vocabulary) + float64(o.longest()) + float64(o.model.Layers)*(12*width+13))
	return 4 * 4 * elements * float64(max(o.Placement.Copies, 1)*o.Replicas)
}

// identities returns the number of stages without a part of the model, which pass their inputs on.
func (o *options) identities() int { return max(o.Placement.Depth()-(o.model.Layers+2), 0) }

// describe returns the model and the plan in one line.
func (o *options) describe() string {
	parts := []string{fmt.Sprintf("width %d, %d blocks, %d heads", o.model.Width, o.model.Layers, o.model.Heads), o.Describe()}
	if o.tied {
		parts = append(parts, "tied tables")
	}
	if o.model.Recompute {
		parts = append(parts, "recompute")
	}
	if o.model.FP8Attention {
		parts = append(parts, fmt.Sprintf("FP8 %v with attention", o.model.FP8))
	} else if o.model.FP8 != nil {
		parts = append(parts, fmt.Sprintf("FP8 %v", o.model.FP8))
	}
	if o.model.Dropout > 0 {
		parts = append(parts, fmt.Sprintf("dropout %g", o.model.Dropout))
	}
	what := "microbatches"
	if o.lengths {
		what = "documents"
	}
	parts = append(parts, fmt.Sprintf("%d %s of up to %d %ss a step", o.Microbatches, what, o.sequence, o.unit()))
	if o.pack > 0 {
		parts = append(parts, fmt.Sprintf("packed by %s into microbatches of up to %d", o.packer, o.pack))
	}
	return strings.Join(parts, ", ")
}

// float32s is the value of -fp8 for no recipe.
const float32s = "none"

// fp8Width is the default width of the model in FP8: the blocks of every recipe divide it.
const fp8Width = 128

// recipes returns the values of -fp8.
func recipes() []string { return append([]string{float32s}, fp8.Names...) }

// inFP8 sets the options that follow from -fp8.
func (o *options) inFP8() error {
	o.model.FP8 = nil
	if o.fp8 == float32s {
		if o.model.FP8Attention {
			return fmt.Errorf("-fp8-attention needs -fp8 %s", job.List(fp8.Names))
		}
		return nil
	}
	recipe, err := fp8.Named(o.fp8)
	if err != nil {
		return fmt.Errorf("-fp8 is %q: give %s", o.fp8, job.List(recipes()))
	}
	if !o.Given("width") && o.Resume == "" {
		o.model.Width = fp8Width
	}
	if err := fp8.Divides(recipe, "block0.attention.qkv.input", o.model.Width); err != nil {
		return fmt.Errorf("-width: %w", err)
	}
	o.model.FP8 = recipe
	return nil
}

// float32Value is a float32 flag. Its String is exact.
type float32Value float32

func (f *float32Value) Set(s string) error {
	value, err := strconv.ParseFloat(s, 32)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return errors.New("it is not a number")
	}
	*f = float32Value(value)
	return nil
}

func (f *float32Value) String() string { return strconv.FormatFloat(float64(*f), 'g', -1, 32) }
