package fp8

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

// Recipe defines how tensors are scaled. It is implemented only by types of this package, all of
// which are comparable.
type Recipe interface {
	// Validate reports every fault of the recipe; each wraps ErrRecipe.
	Validate() error
	// String returns the name of the recipe for flags and logs.
	String() string
	// Encoding returns the encoding of a tensor with the given role.
	Encoding(role Role) kernels.Encoding
	// Quantize returns the operation that quantizes a tensor with the given role. The caller sets
	// its buffers, shape, scale, tally and key.
	Quantize(role Role) kernels.Quantize
	// text returns all parameters of the recipe, for checkpoints.
	text() string
}

// ErrRecipe is returned for an invalid recipe.
var ErrRecipe = errors.New("fp8: recipe")

// MaxHistory is the longest history, in steps.
const MaxHistory = 1 << 16

// DelayedScaling scales a tensor by its greatest magnitudes in earlier steps.
type DelayedScaling struct {
	Format Pair
	// Margin is the number of powers of two left free above the greatest value seen.
	Margin int
	// History is the number of steps that are remembered; 0 means 16. Other implementations count
	// microbatches; steps make the result independent of the number of microbatches.
	History int
	// MostRecent uses the last step's amax instead of the greatest in the history.
	MostRecent bool
}

// CurrentScaling scales a tensor by its own greatest magnitude.
type CurrentScaling struct {
	Format   Pair
	Epsilon  float32 // lower bound of the greatest magnitude
	PowerOf2 bool    // scales are powers of two
}

// BlockScaling gives activations and gradients a scale for every 128 elements of a row, and
// weights a scale for every tile of 128 by 128 (DeepSeek-V3).
type BlockScaling struct {
	Format  Pair // as published: Pair{E4M3, E4M3}, which is E4M3 in both directions
	Epsilon float32
	// AnyScale allows scales that are not powers of two.
	AnyScale bool
}

// MXFP8 scales every 32 elements along the contraction by a power of two (OCP MX).
type MXFP8 struct {
	Format Pair
	// Down rounds scales down, which is OCP's minimal rule and makes some values saturate. The
	// default is to round up, as hardware does.
	Down bool
}

// NVFP4 uses E2M1 elements, an E4M3 scale for every 16 of them and one float32 scale for the
// tensor. Gradients are rounded stochastically unless Nearest is set.
//
// Two parts of TransformerEngine's recipe are missing. Weights have a scale for every 16 elements
// along the contraction instead of for every 16 by 16, so the copies for the forward and the
// backward pass decode to different numbers. Also, the operands of weight gradients are not
// multiplied by a Hadamard transform, which spreads an outlier over 16 tokens.
type NVFP4 struct {
	// Nearest rounds gradients to nearest, like all other tensors.
	Nearest bool
}

func (DelayedScaling) String() string { return "delayed" }
func (CurrentScaling) String() string { return "current" }
func (BlockScaling) String() string   { return "block" }
func (MXFP8) String() string          { return "mxfp8" }
func (NVFP4) String() string          { return "nvfp4" }

// steps returns the number of steps that are remembered.
func (r DelayedScaling) steps() int {
	if r.History == 0 {
		return 16
	}
	return r.History
}

// Validate reports every fault of the recipe.
func (r DelayedScaling) Validate() error {
	return errors.Join(r.Format.validate("delayed"),
		fault(r.Margin < 0 || r.Margin > 64, "delayed: a margin of %d powers of two, want 0 to 64", r.Margin),
		fault(r.History < 0 || r.History > MaxHistory, "delayed: a history of %d steps, want 1 to %d, or 0 for 16", r.History, MaxHistory))
}

// Validate reports every fault of the recipe.
func (r CurrentScaling) Validate() error {
	return errors.Join(r.Format.validate("current"), epsilon("current", r.Epsilon))
}

// Validate reports every fault of the recipe.
func (r BlockScaling) Validate() error {
	return errors.Join(r.Format.validate("block"), epsilon("block", r.Epsilon))
}

// Validate reports every fault of the recipe.
func (r MXFP8) Validate() error { return r.Format.validate("mxfp8") }

// Validate returns nil: every value is valid.
func (r NVFP4) Validate() error { return nil }

func (p Pair) validate(recipe string) error {
	return errors.Join(
		fault(p.Forward != E4M3 && p.Forward != E5M2, "%s: forward in %v, want e4m3 or e5m2", recipe, p.Forward),
		fault(p.Backward != E4M3 && p.Backward != E5M2, "%s: gradients in %v, want e4m3 or e5m2", recipe, p.Backward),
		fault(p.Forward == E5M2, "%s: forward in e5m2, which has too little mantissa to train: use e4m3", recipe))
}

func epsilon(recipe string, e float32) error {
	return fault(!(e >= 0 && e <= 1e30), "%s: an epsilon of %g, want 0 or a small positive number", recipe, e)
}

// fault returns an error that wraps ErrRecipe if wrong is set, or else nil.
func fault(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf("%w: "+format, append([]any{ErrRecipe}, args...)...)
}
