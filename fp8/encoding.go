package fp8

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
)

// ErrShape is returned for a tensor whose dimensions a recipe cannot scale.
var ErrShape = errors.New("fp8: shape")

// of returns the format of a role.
func (p Pair) of(role Role) Format {
	if role.backward() {
		return p.Backward
	}
	return p.Forward
}

// Encoding has one scale for the tensor.
func (r DelayedScaling) Encoding(role Role) kernels.Encoding {
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.PerTensor}
}

// Encoding has one scale for the tensor.
func (r CurrentScaling) Encoding(role Role) kernels.Encoding {
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.PerTensor}
}

// Encoding has tiles in weights and parts of rows in all others.
func (r BlockScaling) Encoding(role Role) kernels.Encoding {
	if role == Weight {
		return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.Tiles128}
	}
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.Rows128}
}

// Encoding has a power of two for 32 elements.
func (r MXFP8) Encoding(role Role) kernels.Encoding {
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.MX32}
}

// Encoding has E2M1 and two levels of scales in every role.
func (r NVFP4) Encoding(Role) kernels.Encoding {
	return kernels.Encoding{Format: E2M1, Scaling: kernels.NV16}
}

// Quantize takes scales as they come, and leaves the margin where there is no history yet.
func (r DelayedScaling) Quantize(Role) kernels.Quantize {
	return kernels.Quantize{AnyScale: true, Margin: r.Margin}
}

// Quantize takes the recipe's epsilon and powers of two.
func (r CurrentScaling) Quantize(Role) kernels.Quantize {
	return kernels.Quantize{Epsilon: r.Epsilon, AnyScale: !r.PowerOf2}
}

// Quantize takes the recipe's epsilon and powers of two.
func (r BlockScaling) Quantize(Role) kernels.Quantize {
	return kernels.Quantize{Epsilon: r.Epsilon, AnyScale: r.AnyScale}
}

// Quantize takes the recipe's rule of rounding scales.
func (r MXFP8) Quantize(Role) kernels.Quantize { return kernels.Quantize{Down: r.Down} }

// Quantize rounds gradients stochastically.
func (r NVFP4) Quantize(role Role) kernels.Quantize {
	return kernels.Quantize{Stochastic: role.backward() && !r.Nearest}
}

// hardware is what the widths of every operand are multiples of on every device that
// has such products.
const hardware = 16

// Divides reports whether a width of the tensor called name, along which it is contracted
// somewhere, is a whole number of the recipe's blocks, and of the 16 that hardware wants.
// Token counts need not be: their last block is short. The error wraps ErrShape.
func Divides(r Recipe, name string, width int) error {
	block, of := hardware, "whole blocks of"
	switch r.Encoding(Input).Scaling {
	case kernels.PerTensor:
		of = "a multiple of"
	case kernels.Rows128, kernels.Tiles128:
		block = 128
	case kernels.MX32:
		block = 32
	}
	if width > 0 && width%block == 0 {
		return nil
	}
	take := fmt.Sprint(max(width, 0)/block*block + block)
	switch {
	case width > math.MaxInt-block:
		take = fmt.Sprint(width / block * block)
	case width > block:
		take = fmt.Sprintf("%d or %s", width/block*block, take)
	}
	return fmt.Errorf("%w: %q has a width of %d, and %v wants %s %d: take %s", ErrShape, name, width, r, of, block, take)
}
