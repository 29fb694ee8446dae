package transformer

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
)

// LossName is the name of the loss that the head records. Declare it to the
// runner as loss.Def{Name: LossName, Reduction: loss.Mean, Objective: true}.
const LossName = "loss"

// Config is the configuration of a model. Vocabulary, Width, Layers, Heads and Context are
// required.
type Config struct {
	Vocabulary int // number of different tokens
	Width      int // elements of a token's hidden state
	Layers     int // number of blocks
	Heads      int // attention heads in a block; must divide Width
	Context    int // length of the longest sequence, in tokens
	// Dropout is the probability of dropping an element of the embedding's output and of the
	// result of each half of a block. 0 means no dropout.
	Dropout float32
	// Recompute makes every block keep only its input, and run its forward again in its
	// backward. The numbers do not change.
	Recompute bool
	// FP8 is the recipe for the linear layers of the blocks; nil means float32. Weights, their
	// gradients and everything between the layers stay float32, and so do the embedding and the
	// head. Width must be a multiple of the recipe's block.
	FP8 fp8.Recipe
	// FP8Attention keeps queries, keys, values and the output of attention in FP8 as well;
	// attention then uses the kept values. Its own products stay float32: neither the weights of
	// attention (P) nor their gradients (dP, dS) are quantized. Thus it saves memory but no time.
	// TransformerEngine's fp8_dpa quantizes P and dP as well, scaled by a history even if the
	// recipe is current scaling, and is not available with block scaling.
	FP8Attention bool
	// Untied gives the head its own table instead of the embedding's.
	Untied bool
	// KeepLogits limits the float32 logits, in bytes, that a microbatch of Context tokens keeps from
	// its forward to its backward. For a longer, packed microbatch the limit grows in proportion. All logits take 4 bytes for each token and word of the vocabulary. NoLogits
	// keeps none, and the backward recomputes them, which is a quarter of the head's products. 0
	// leaves the choice to Model.Record; without Record none are kept. The numbers do not change.
	KeepLogits int64
	// Seed is the seed of the initial weights.
	Seed uint64
	// Replicas is the number of data-parallel replicas that NewOn makes; 0 means 1. Shard selects
	// the buffers of which each replica stores only the part that it owns, like
	// runner.Replicas.Shard: at 1 the moments, at 2 the gradients too, and at 3 the weights as
	// well. At Shard 3 the model has no whole weights: Weights, QuantizedWeights and SHA256
	// require Shard 0 to 2.
	Replicas, Shard int
}

// replicas returns the number of replicas.
func (c *Config) replicas() int { return max(c.Replicas, 1) }

// Limits that New enforces. They ensure that products of sizes fit in an int and that names stay
// short; memory is exhausted long before they are reached.
const (
	maxLayers   = 1 << 16
	maxElements = math.MaxInt / 64
)

// Validate reports every fault of the configuration at once.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("transformer: "+format, args...))
	}
	for _, size := range []struct {
		name  string
		value int
	}{
		{"Vocabulary", c.Vocabulary}, {"Width", c.Width}, {"Layers", c.Layers},
		{"Heads", c.Heads}, {"Context", c.Context},
	} {
		if size.value < 1 {
			fault("%s is %d, want at least 1", size.name, size.value)
		}
	}
	if c.Vocabulary > math.MaxInt32 {
		fault("Vocabulary is %d, tokens are int32", c.Vocabulary)
	}
	if c.Layers > maxLayers {
		fault("Layers is %d, want at most %d", c.Layers, maxLayers)
	}
	if c.Heads > 0 && c.Width > 0 && c.Width%c.Heads != 0 {
		fault("Heads %d do not divide Width %d", c.Heads, c.Width)
	}
	if !(c.Dropout >= 0 && c.Dropout < 1) {
		fault("Dropout is %v, want at least 0 and below 1", c.Dropout)
	}
	if c.Replicas < 0 {
		fault("Replicas is %d, want at least 1, or 0 for 1", c.Replicas)
	}
	if c.Shard < 0 || c.Shard > 3 {
		fault("Shard is %d, want 0 to 3", c.Shard)
	}
	if c.KeepLogits < NoLogits {
		fault("KeepLogits is %d, want bytes, %d for none or 0 for a choice by the plan of memory", c.KeepLogits, NoLogits)
	}
	if c.FP8 != nil {
		if err := c.FP8.Validate(); err != nil {
			fault("FP8: %w", err)
		} else if err := fp8.Divides(c.FP8, "block0.attention.qkv.input", c.Width); err != nil {
			fault("Width %d: %w", c.Width, err)
		}
	} else if c.FP8Attention {
		fault("FP8Attention without a recipe in FP8")
	}
	if len(faults) == 0 && c.elements() > maxElements {
		fault("the model has %.3g parameters, too many to count in bytes", c.elements())
	}
	return errors.Join(faults...)
}

// elements returns the total number of elements of all parameters. It is a float64 because it may
// overflow an int.
func (c Config) elements() float64 {
	vocabulary, width := float64(c.Vocabulary), float64(c.Width)
	tables := vocabulary
	if c.Untied {
		tables *= 2
	}
	return width * (tables + float64(c.Context) + float64(c.Layers)*(12*width+13) + 2)
}

// dropout is one of a stage's dropouts: its probability, the key of its random draws, and the
// number of elements of a token.
type dropout struct {
	p     float32
	op    uint64
	width int
}

func (c Config) dropout(name string) dropout {
	return dropout{p: c.Dropout, op: kernels.OpKey(name), width: c.Width}
}
