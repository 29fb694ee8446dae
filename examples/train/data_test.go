package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
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

// counting returns tokens of which each determines the next.
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
