package fp8test

import "github.com/weir-ml/weir/kernels"

// Recipe is how package fp8 quantizes under one of its recipes.
type Recipe struct {
	Name string
	// Ways are the encodings of activations, weights and gradients, with what Quantize is
	// told for each; operands are filled in.
	Ways []Way
}

// Way is an encoding and how something is quantized into it.
type Way struct {
	Encoding kernels.Encoding
	// Options are the numbers and switches of a Quantize.
	Options kernels.Quantize
	// Frozen takes the scale from a slab.
	Frozen bool
}

// Recipes returns all recipes, with every variant that fp8 has.
func Recipes() []Recipe {
	way := func(f kernels.Format, s kernels.Scaling, options kernels.Quantize) Way {
		return Way{Encoding: kernels.Encoding{Format: f, Scaling: s}, Options: options}
	}
	both := func(s kernels.Scaling, options kernels.Quantize) []Way {
		return []Way{way(kernels.E4M3, s, options), way(kernels.E5M2, s, options)}
	}
	frozen := both(kernels.PerTensor, kernels.Quantize{})
	for i := range frozen {
		frozen[i].Frozen = true
	}
	stochastic := kernels.Quantize{Stochastic: true, Key: kernels.Key{Seed: 5, Step: 3, Microbatch: 2, Op: kernels.OpKey("grad")}}
	join := func(ways ...[]Way) (all []Way) {
		for _, w := range ways {
			all = append(all, w...)
		}
		return all
	}
	return []Recipe{
		{"delayed", join(frozen, both(kernels.PerTensor, kernels.Quantize{AnyScale: true, Margin: 2}))},
		{"current", join(both(kernels.PerTensor, kernels.Quantize{}), both(kernels.PerTensor, kernels.Quantize{AnyScale: true, Epsilon: 1e-3}), both(kernels.PerTensor, stochastic))},
		{"block", join(
			both(kernels.Rows128, kernels.Quantize{}), both(kernels.Rows128, kernels.Quantize{AnyScale: true, Epsilon: 1e-3}),
			both(kernels.Tiles128, kernels.Quantize{}), both(kernels.Tiles128, kernels.Quantize{AnyScale: true}))},
		{"mxfp8", join(both(kernels.MX32, kernels.Quantize{}), both(kernels.MX32, kernels.Quantize{Down: true}), both(kernels.MX32, stochastic))},
		{"nvfp4", []Way{way(kernels.E2M1, kernels.NV16, kernels.Quantize{}), way(kernels.E2M1, kernels.NV16, stochastic)}},
	}
}
