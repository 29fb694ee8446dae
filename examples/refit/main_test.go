package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefit(t *testing.T) {
	cases := [][]string{}
	for as := range encodings {
		cases = append(cases, []string{"-as", as})
	}
	for recipe := range recipes {
		cases = append(cases, []string{"-fp8", recipe, "-as", "mxfp8"})
	}
	for _, args := range cases {
		var out, errs bytes.Buffer
		require.Zero(t, run(t.Context(), append(args, "-rounds", "2"), &out, &errs), errs.String())
		text := out.String()
		require.Equal(t, 2, strings.Count(text, "then 0 B live, 0 B reserved"), text)
		require.Contains(t, text, "the same as of a trainer that kept its memory")
	}
}

// From the stream alone, the generator gets the weights that the trainer has learned.
func TestGeneratorLearns(t *testing.T) {
	trained, err := newTrainer(recipes["delayed"])
	require.NoError(t, err)
	for range 60 {
		_, err := trained.step(t.Context())
		require.NoError(t, err)
	}
	bytes := map[string]int64{}
	for as, encoding := range encodings {
		out, err := refit(trained, encoding)
		require.NoError(t, err)
		require.Equal(t, "the water keeps flowing", out.text, as)
		bytes[as] = out.handed
	}
	require.Less(t, 3*bytes["block"], 2*bytes["float32"])
	require.Less(t, bytes["block"], bytes["mxfp8"])
	require.Less(t, bytes["nvfp4"], bytes["block"])
	require.NoError(t, trained.close())
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{"-rounds", "0"}, {"-as", "fp16"}, {"-fp8", "block"}, {"what"}, {"-none"}} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, run(t.Context(), args, &out, &errs))
		require.NotEmpty(t, errs.String())
	}
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-help"}, &out, &errs))
}
