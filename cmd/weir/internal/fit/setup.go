package fit

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// ErrSetup is wrapped by errors about a training setup.
var ErrSetup = errors.New("fit: invalid setup")

// Setup describes the training of a model. Microbatch, Tensor, Context, Data and Expert default to 1.
type Setup struct {
	Sequence   int // tokens of a sequence
	Microbatch int // sequences of a microbatch

	Tensor           int  // ranks that share a layer
	SequenceParallel bool // they also share the activations between the layers' products
	Context          int  // ranks that share a sequence
	Data             int  // replicas
	Expert           int  // ranks that share the experts of a layer; part of Data and Context
	ExpertTensor     int  // ranks that share an expert; 0 is Tensor
	Gathered         int  // number of a rank's stages whose weights ZeRO 3 gathers at the same time; 0 counts none
	Zero             int  // ZeRO stage: replicas share the optimizer's state (1), gradients too (2), weights too (3)

	Precision Precision
	Gradients int // bytes of an element of a gradient; 0 is the default of the precision
	Optimizer Optimizer
	Recompute Recompute

	UnfusedAttention bool  // attention keeps its scores, as without FlashAttention
	Unfused          bool  // weight gradients are computed into separate buffers and then added
	Further          bool  // layers that predict further tokens are trained
	FurtherStage     int   // the stage that has them; 0 is the last one
	Allowance        int64 // bytes for memory outside of tensors
}

// Precision is the number format of weights, gradients and optimizer state. The zero value is
// BF16.
type Precision string

// The precisions.
const (
	BF16 Precision = "bf16" // weights and activations bfloat16; gradients, a copy of the weights and moments float32
	FP16 Precision = "fp16" // as in Megatron: weights, activations and gradients float16, with float32 copies
	FP32 Precision = "fp32" // all float32
	AMP  Precision = "amp"  // weights, gradients and moments float32; activations bfloat16
	// FP8 is BF16 with the products of the layers between embedding and head in FP8, as TransformerEngine computes
	// them with a scale for each tensor: the input of a product is kept in one byte per element, and two copies of
	// its weights are kept in one byte each, by rows and by columns. Gradients of activations are assumed to be
	// bfloat16.
	FP8 Precision = "fp8"
)

// Optimizer is a kind of optimizer. The zero value is AdamW.
type Optimizer string

// The optimizers, by the number of float32 values that they keep for each parameter, not counting a copy of
// the weights.
const (
	AdamW    Optimizer = "adamw"    // two
	Momentum Optimizer = "momentum" // one: SGD with momentum, Lion, Muon
	SGD      Optimizer = "sgd"      // none
)

// Recompute selects the saved tensors that the backward computes again instead.
type Recompute struct {
	All    bool     // every saved tensor of a layer, except its input
	Groups []string // the tensors of these groups: core, norm, activation
	Stages []int    // the stages that recompute; nil means all
}

// groups are the groups of tensors that can be recomputed separately.
var groups = []string{"core", "norm", "activation"}

// ParseRecompute parses none, full, selective, or groups joined by commas.
func ParseRecompute(text string) (r Recompute, err error) {
	switch text {
	case "none", "":
	case "full":
		r.All = true
	case "selective":
		r.Groups = []string{"core"}
	default:
		for name := range strings.SplitSeq(text, ",") {
			if !slices.Contains(groups, name) {
				return r, diagnostic.Errorf(ErrSetup, "%q is not a recompute group: give none, full, selective, or some of %s", name, strings.Join(groups, ","))
			}
			r.Groups = append(r.Groups, name)
		}
	}
	return r, nil
}

// String returns the text that [ParseRecompute] parses, without Stages.
func (r Recompute) String() string {
	switch {
	case r.All:
		return "full"
	case len(r.Groups) == 0:
		return "none"
	case slices.Equal(r.Groups, []string{"core"}):
		return "selective"
	}
	return strings.Join(r.Groups, ",")
}

// MarshalText returns the text of String.
func (r Recompute) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

const (
	maxTokens   = 1 << 26
	maxParallel = 1 << 16
)

// withDefaults returns the setup with its defaults in place of zeros.
func (s Setup) withDefaults() Setup {
	for _, n := range []*int{&s.Microbatch, &s.Tensor, &s.Context, &s.Data, &s.Expert} {
		*n = cmp.Or(*n, 1)
	}
	s.ExpertTensor = cmp.Or(s.ExpertTensor, s.Tensor)
	s.Precision, s.Optimizer = cmp.Or(s.Precision, BF16), cmp.Or(s.Optimizer, AdamW)
	return s
}

// Validate reports all faults of the setup for a model. Each of the joined errors wraps ErrSetup.
func (s Setup) Validate(m *Model) error {
	s = s.withDefaults()
	f := faults{kind: ErrSetup}
	f.size("the sequence", s.Sequence, 1, maxTokens)
	f.size("the size of a microbatch", s.Microbatch, 1, maxTokens)
	f.size("data parallelism", s.Data, 1, maxParallel)
	f.size("expert tensor parallelism", s.ExpertTensor, 1, maxParallel)
	tensor := f.size("tensor parallelism", s.Tensor, 1, maxParallel)
	f.refuse(tensor && m.Heads%s.Tensor != 0, "%d attention heads do not divide over a tensor parallelism of %d", m.Heads, s.Tensor)
	context := f.size("context parallelism", s.Context, 1, maxParallel)
	f.refuse(context && s.Sequence%s.Context != 0, "a sequence of %d does not divide over a context parallelism of %d", s.Sequence, s.Context)
	experts := f.size("expert parallelism", s.Expert, 1, maxParallel) && s.Expert > 1
	f.refuse(experts && m.Experts == 0, "expert parallelism is %d, and the model has no experts", s.Expert)
	f.refuse(experts && m.Experts%s.Expert != 0, "%d experts do not divide over an expert parallelism of %d", m.Experts, s.Expert)
	f.refuse(s.Zero < 0 || s.Zero > 3, "ZeRO is %d: give 0 to 3", s.Zero)
	f.refuse(s.Gathered < 0 || s.Gathered > 0 && s.Zero < 3, "%d stages are gathered with ZeRO %d: give 1 or more with ZeRO 3, or 0", s.Gathered, s.Zero)
	f.refuse(!slices.Contains([]int{0, 2, 4}, s.Gradients), "a gradient has %d bytes: give 2 or 4", s.Gradients)
	f.refuse(s.Allowance < 0, "the allowance is %d bytes", s.Allowance)
	known := slices.Contains([]Precision{BF16, FP16, FP32, AMP, FP8}, s.Precision) && slices.Contains([]Optimizer{AdamW, Momentum, SGD}, s.Optimizer)
	f.refuse(!known, "the precision %q or the optimizer %q is unknown", s.Precision, s.Optimizer)
	return errors.Join(f.list...)
}
