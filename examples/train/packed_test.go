package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPackedDocuments trains on documents of different lengths. Packed in their order they give the weights
// of one document a microbatch, bit for bit, also under another plan on two ranks. The packer of weir
// reports its forecast.
func TestPackedDocuments(t *testing.T) {
	folder := t.TempDir()
	for i := range 30 {
		text := strings.Repeat(fmt.Sprintf("document %d. ", i), 1+i*i%7)
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%02d.txt", i)), []byte(text), 0o644))
	}
	costs := filepath.Join(t.TempDir(), "costs.json")
	require.NoError(t, os.WriteFile(costs, []byte(`{"schema": 1, "unit": "ns", "stages": [{"f": 9000, "i": 9000, "w": 9000, "b": 18000,
		"per_token": {"f": 900, "i": 900, "w": 900, "b": 1800, "saved": 4000, "freed_by_i": 2000, "output": 64, "gradient": 64},
		"per_square": {"f": 9, "i": 9, "w": 9, "b": 18}}]}`), 0o644))
	flags := []string{"-data", folder, "-lengths", "-seq", "64", "-microbatches", "9", "-dropout", "0.1", "-steps", "3"}
	run := func(more ...string) summary { return summaryOf(t, slices.Concat(flags, more)...) }
	packed := []string{"-pack", "64", "-costs", costs, "-packer", "arrival"}
	want := run().WeightsSHA256
	require.Equal(t, want, run(packed...).WeightsSHA256)
	require.Equal(t, want, run(append(packed, "-ranks", "2", "-plan", "zb-v", "-sums")...).WeightsSHA256)

	measured := filepath.Join(t.TempDir(), "measured.json")
	status, _, out, errs := runTiny(t, slices.Concat(flags, []string{"-ranks", "2", "-emit-costs", measured, "-run", ""})...)
	require.Zero(t, status, errs)
	require.NotRegexp(t, `(?m)^0 .* 0 B .* 0 B .* 0 B .* 0 B `, out, "the sizes are of the longest sequence")
	status, _, _, errs = runTiny(t, slices.Concat(flags, []string{"-pack", "64", "-emit-profile", filepath.Join(t.TempDir(), "profile.json"), "-run", ""})...)
	require.Zero(t, status, errs)

	ordered := []string{"-pack", "64", "-costs", measured, "-ranks", "2", "-plan", "1f1b"}
	status, _, out, errs = runTiny(t, append(flags, ordered...)...)
	require.Zero(t, status, errs)
	require.Regexp(t, `packed  [0-9.]+ microbatches a step; forecast [0-9.]+[µm]?s a step and a peak of [0-9.]+ [KM]iB, measured`, out)
	require.NotContains(t, out, want)

	status, _, _, errs = runTiny(t, "-pack", "8")
	require.Equal(t, 1, status)
	for _, fault := range []string{"-pack needs -lengths", "-pack 8 is less than -seq", "-pack needs -costs"} {
		require.Contains(t, errs, fault)
	}
}
