package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

func TestSplit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(path, []byte("0123456789abcdefghij?"), 0o666))
	d, err := readData(t.Context(), &options{data: path, sequence: 1})
	require.NoError(t, err)
	require.Equal(t, corpus.Bytes("0123456789abcdefghi"), d.training)
	require.Equal(t, corpus.Bytes("j?"), d.heldout)
	_, err = readData(t.Context(), &options{data: path, sequence: 2})
	require.ErrorContains(t, err, "longer than the data")
}

// tokenFile writes tokens with a given number of bytes, with the header of llm.c or without.
func tokenFile(t *testing.T, width int, header bool, ids []uint32) string {
	t.Helper()
	var content []byte
	if header {
		magic := map[int][2]uint32{2: {20240520, 1}, 4: {20240801, 7}}[width]
		for _, v := range []uint32{magic[0], magic[1], uint32(len(ids))} {
			content = binary.LittleEndian.AppendUint32(content, v)
		}
		content = append(content, make([]byte, 1024-len(content))...)
	}
	for _, id := range ids {
		content = append(content, binary.LittleEndian.AppendUint32(nil, id)[:width]...)
	}
	path := filepath.Join(t.TempDir(), "tokens.bin")
	require.NoError(t, os.WriteFile(path, content, 0o666))
	return path
}

// counting returns n tokens below 300.
func counting(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i*i) % 300
	}
	return ids
}

// Every format of the same tokens gives the same weights, and a run resumes without the flags
// that describe the format.
func TestTokens(t *testing.T) {
	ids, vocabulary := counting(2000), []string{"-vocabulary", "300", "-ranks", "2"}
	want := summaryOf(t, append(vocabulary, "-data", tokenFile(t, 2, true, ids), "-tokens", "uint16")...)
	require.Equal(t, "token", want.Unit)
	require.Nil(t, want.LossFrequencies)
	require.EqualValues(t, 4000, want.DataBytes)
	bare := tokenFile(t, 4, false, ids)
	other := []string{"-data", bare, "-tokens", "uint32", "-checkpoint", filepath.Join(t.TempDir(), "ck")}
	require.Equal(t, want.WeightsSHA256, summaryOf(t, append(vocabulary, other...)...).WeightsSHA256)

	more := summaryOf(t, "-data", bare, "-resume", other[5], "-steps", "5")
	require.Equal(t, 3, more.ResumedAt)
	status, _, _, stderr := runTiny(t, "-data", tokenFile(t, 4, false, counting(1999)), "-resume", other[5], "-steps", "5")
	requireOneLine(t, status, stderr, "was trained on another text")

	for want, flags := range map[string][]string{
		`-tokens is "uint8": give uint16 or uint32`: {"-data", bare, "-tokens", "uint8"},
		"-tokens needs a file: give -data":          {"-tokens", "uint16"},
		"-vocabulary is for -tokens":                {"-vocabulary", "300"},
		"expected less than -vocabulary 100":        {"-data", bare, "-tokens", "uint32", "-vocabulary", "100"},
		"no such file":                              {"-data", bare + "x", "-tokens", "uint32"},
		"-seq 16 is longer than the data":           {"-data", tokenFile(t, 2, true, ids[:100]), "-tokens", "uint16"},
		"its header says that a token has 4 bytes":  {"-data", tokenFile(t, 4, true, ids), "-tokens", "uint16"},
	} {
		status, _, _, stderr := runTiny(t, flags...)
		requireOneLine(t, status, stderr, want)
	}
}

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
