package main

import (
	"fmt"
	"strings"

	"github.com/weir-ml/weir/stages/transformer"
)

// configuration is a model with the length of its sequences.
type configuration struct {
	Layers     int `json:"layers,omitempty"`
	Heads      int `json:"heads,omitempty"`
	Width      int `json:"width,omitempty"`
	Vocabulary int `json:"vocabulary,omitempty"`
	Sequence   int `json:"sequence,omitempty"`
}

// configurations lists the configurations with which other programs have been measured.
var configurations = func() (all []configuration) {
	for _, vocabulary := range []int{4096, 50257} {
		for _, layers := range []int{4, 6} {
			for _, sequence := range []int{64, 256} {
				all = append(all, configuration{layers, layers, 64 * layers, vocabulary, sequence})
			}
		}
	}
	return all
}()

// name returns a short name such as "g4 4k T64".
func (c configuration) name() string {
	return fmt.Sprintf("g%d %dk T%d", c.Layers, c.Vocabulary/1000, c.Sequence)
}

// matches reports whether the name contains all parts of a list with commas or spaces between them.
func (c configuration) matches(parts string) bool {
	for _, part := range strings.FieldsFunc(parts, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !strings.Contains(" "+c.name()+" ", " "+part+" ") {
			return false
		}
	}
	return true
}

func (c configuration) model(keep int64) transformer.Config {
	return transformer.Config{
		Vocabulary: c.Vocabulary, Width: c.Width, Layers: c.Layers, Heads: c.Heads, Context: c.Sequence, Seed: 1, KeepLogits: keep,
	}
}

// stepFlops returns the number of floating-point operations in the matrix products that a step needs: two
// in the forward and four in the backward for each weight and token, and the operations of attention, which
// needs half of all pairs of tokens.
func (c configuration) stepFlops() float64 {
	weights := 12*c.Width*c.Width*c.Layers + c.Width*c.Vocabulary
	pairs := c.Sequence * (c.Sequence + 1) / 2
	return batch * (6*float64(c.Sequence)*float64(weights) + 12*float64(pairs)*float64(c.Width*c.Layers))
}

// steps returns the configurations whose names contain the given parts.
func steps(only string) (all []subject) {
	for _, c := range configurations {
		if c.matches(only) {
			all = append(all, subject{Kind: "step", Name: c.name(), configuration: c})
		}
	}
	return all
}
