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

// Encoding returns an encoding with one scale for the tensor.
func (r DelayedScaling) Encoding(role Role) kernels.Encoding {
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.PerTensor}
}

// Encoding returns an encoding with one scale for the tensor.
func (r CurrentScaling) Encoding(role Role) kernels.Encoding {
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.PerTensor}
}

// Encoding returns an encoding that scales weights by tiles, and tensors of all other roles by
// parts of rows.
func (r BlockScaling) Encoding(role Role) kernels.Encoding {
	if role == Weight {
		return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.Tiles128}
	}
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.Rows128}
}

// Encoding returns an encoding with a power of two for every 32 elements.
func (r MXFP8) Encoding(role Role) kernels.Encoding {
	return kernels.Encoding{Format: r.Format.of(role), Scaling: kernels.MX32}
}

// Encoding returns E2M1 with two levels of scales for every role.
func (r NVFP4) Encoding(Role) kernels.Encoding {
	return kernels.Encoding{Format: E2M1, Scaling: kernels.NV16}
}

// Quantize allows scales that are not powers of two, and applies the margin while there is no
// history.
func (r DelayedScaling) Quantize(Role) kernels.Quantize {
	return kernels.Quantize{AnyScale: true, Margin: r.Margin}
}

// Quantize uses the recipe's epsilon and its choice of scales.
func (r CurrentScaling) Quantize(Role) kernels.Quantize {
	return kernels.Quantize{Epsilon: r.Epsilon, AnyScale: !r.PowerOf2}
}

// Quantize uses the recipe's epsilon and its choice of scales.
func (r BlockScaling) Quantize(Role) kernels.Quantize {
	return kernels.Quantize{Epsilon: r.Epsilon, AnyScale: r.AnyScale}
}

// Quantize uses the recipe's rounding of scales.
func (r MXFP8) Quantize(Role) kernels.Quantize { return kernels.Quantize{Down: r.Down} }

// Quantize rounds gradients stochastically unless r.Nearest is set.
func (r NVFP4) Quantize(role Role) kernels.Quantize {
	return kernels.Quantize{Stochastic: role.backward() && !r.Nearest}
}

// hardware is the number that must divide the width of every operand, on every device with
// low-precision products.
const hardware = 16

// Divides returns an error unless width, along which the named tensor is contracted, is a
// multiple of the recipe's block and of 16, which hardware requires. Token counts need not be,
// because their last block may be short. The error wraps ErrShape.
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
