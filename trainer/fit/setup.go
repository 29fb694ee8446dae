package fit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrSetup is wrapped by errors about how a model is trained.
var ErrSetup = errors.New("fit: invalid setup")

// Setup says how a model is trained. Sizes of 0 are 1, but for the sequence.
type Setup struct {
	Sequence   int // tokens of a sequence
	Microbatch int // sequences of a microbatch

	Tensor           int  // ranks that share a layer
	SequenceParallel bool // they also share what is between the layers' products
	Context          int  // ranks that share a sequence
	Data             int  // replicas
	Expert           int  // ranks that share the experts of a layer; they are among Data and Context
	ExpertTensor     int  // ranks that share an expert; 0 is Tensor
	Zero             int  // what replicas share: 1 the optimizer's state, 2 gradients too, 3 weights too

	Precision Precision
	Gradients int // bytes of an element of a gradient; 0 is as the precision has it
	Optimizer Optimizer
	Recompute Recompute

	Tables           Tables // whose layers they are
	UnfusedAttention bool   // scores are kept, as without FlashAttention
	Unfused          bool   // gradients of weights are made apart and then added
	Further          bool   // layers that predict further tokens are trained
	Allowance        int64  // bytes of what no tensor accounts for
}

// Precision says which numbers weights, gradients and optimizer have.
type Precision uint8

// The precisions.
const (
	BF16 Precision = iota // weights and activations bfloat16; gradients, a copy of the weights and moments float32
	FP16                  // as Megatron has it: gradients float16, with a float32 copy
	FP32                  // all float32
	AMP                   // weights, gradients and moments float32; activations bfloat16
)

var precisions = []string{"bf16", "fp16", "fp32", "amp"}

// String returns the name of the precision.
func (p Precision) String() string { return precisions[min(int(p), len(precisions)-1)] }

// ParsePrecision is the reverse of String.
func ParsePrecision(name string) (Precision, bool) {
	i := slices.Index(precisions, name)
	return Precision(max(i, 0)), i >= 0
}

// Optimizer says how many float32 numbers the optimizer keeps for each parameter, without its
// copy of the weights.
type Optimizer uint8

// The optimizers.
const (
	AdamW    Optimizer = iota // two
	Momentum                  // one: SGD with momentum, Lion, Muon
	SGD                       // none
)

var optimizers = []string{"adamw", "momentum", "sgd"}

// ParseOptimizer returns the optimizer of a name: adamw, momentum or sgd.
func ParseOptimizer(name string) (Optimizer, bool) {
	i := slices.Index(optimizers, name)
	return Optimizer(max(i, 0)), i >= 0
}

// Recompute says what the backward computes again.
type Recompute struct {
	All    bool     // of every layer, all but its input
	Groups []string // tensors of these groups: core, norm, activation
	Stages []int    // only these stages do; nil is all
}

// groups are the tensors that may be computed again by themselves.
var groups = []string{"core", "norm", "activation"}

// ParseRecompute reads none, full, selective, or groups that are joined by commas.
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
				return r, fmt.Errorf("%w: %q is not recomputed by itself: give none, full, selective, or some of %s", ErrSetup, name, strings.Join(groups, ","))
			}
			r.Groups = append(r.Groups, name)
		}
	}
	return r, nil
}

// String writes what ParseRecompute reads.
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

// of returns what a stage recomputes.
func (r Recompute) of(stage int) Recompute {
	if r.Stages != nil && !slices.Contains(r.Stages, stage) {
		return Recompute{}
	}
	return r
}

const (
	maxTokens   = 1 << 26
	maxParallel = 1 << 16
)

// withDefaults returns the setup with sizes of 0 as 1.
func (s Setup) withDefaults() Setup {
	for _, n := range []*int{&s.Microbatch, &s.Tensor, &s.Context, &s.Data, &s.Expert} {
		if *n == 0 {
			*n = 1
		}
	}
	if s.ExpertTensor == 0 {
		s.ExpertTensor = s.Tensor
	}
	return s
}

// Validate reports every fault of the setup for a model at once. Each of the joined errors
// wraps ErrSetup.
func (s Setup) Validate(m *Model) error {
	s = s.withDefaults()
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrSetup}, args...)...))
	}
	size := func(name string, n, most int) bool {
		if n < 1 || n > most {
			fault("%s is %d: give 1 to %d", name, n, most)
		}
		return n >= 1 && n <= most
	}
	size("the sequence", s.Sequence, maxTokens)
	size("the size of a microbatch", s.Microbatch, maxTokens)
	size("data parallelism", s.Data, maxParallel)
	size("expert tensor parallelism", s.ExpertTensor, maxParallel)
	if size("tensor parallelism", s.Tensor, maxParallel) && m.Heads%s.Tensor != 0 {
		fault("%d attention heads do not divide over a tensor parallelism of %d", m.Heads, s.Tensor)
	}
	if size("context parallelism", s.Context, maxParallel) && s.Sequence%s.Context != 0 {
		fault("a sequence of %d does not divide over a context parallelism of %d", s.Sequence, s.Context)
	}
	if size("expert parallelism", s.Expert, maxParallel) && s.Expert > 1 {
		if m.Experts == 0 {
			fault("expert parallelism is %d, and the model has no experts", s.Expert)
		} else if m.Experts%s.Expert != 0 {
			fault("%d experts do not divide over an expert parallelism of %d", m.Experts, s.Expert)
		}
	}
	if s.Zero < 0 || s.Zero > 3 {
		fault("ZeRO is %d: give 0 to 3", s.Zero)
	}
	if n := s.Gradients; n != 0 && n != 2 && n != 4 {
		fault("a gradient has %d bytes: give 2 or 4", n)
	}
	if s.Allowance < 0 {
		fault("the allowance is %d bytes", s.Allowance)
	}
	if int(s.Precision) >= len(precisions) || int(s.Optimizer) >= len(optimizers) || int(s.Tables) >= len(tables) {
		fault("the precision, the optimizer or the tables are none that there is")
	}
	if m.Latent != nil && s.Tables == PyTorch || len(m.Sparse) > 0 && s.Tables == PyTorch {
		fault("plain PyTorch's layers are known without experts and without latent attention: take those of Megatron-LM")
	}
	return errors.Join(faults...)
}
