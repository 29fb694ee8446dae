package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// leaks runs the program in this process.
func leaks(t *testing.T, args ...string) string {
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), args, &out, &errs), errs.String())
	require.Empty(t, errs.String())
	return out.String()
}

// keeps returns the bytes that each missing guard leaks per microbatch, computed from the
// shapes.
func keeps() map[string]int64 {
	tokens, width, heads := int64(size.Context), int64(size.Width), int64(size.Heads)
	return map[string]int64{
		"plain":     0,
		"kept-loss": 4 * tokens * width,             // the input of the head
		"attention": 4 * tokens * (4*width + heads), // queries, keys, values; the output of attention; its statistics
		"fuser":     2 * 4 * tokens * width,         // the input of each operation
	}
}

func TestLeaks(t *testing.T) {
	const microbatches = 24
	var all []measured
	require.NoError(t, json.Unmarshal([]byte(leaks(t, "-json", "-microbatches", "24")), &all))
	require.Len(t, all, len(guards))
	plain := all[nothing]
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			kept, ok := keeps()[m.Name]
			require.True(t, ok)
			require.Equal(t, kept, m.Growth)
			require.Equal(t, m.LiveBefore, plain.LiveAfter, "a plain step gives back everything")
			require.Equal(t, m.LiveBefore+microbatches*kept, m.LiveAfter)
			require.Equal(t, m.LiveBefore, m.LiveAfterError, "a step that fails takes back what leaked")
			if m.Name == plain.Name {
				require.Nil(t, m.Reported)
				require.Empty(t, m.Error+m.DryRun)
				return
			}
			require.Zero(t, *m.Reported, "the first microbatch")
			require.Contains(t, m.Error, "batchctx: leak: rank 0 stage ")
			require.Contains(t, m.DryRun, "nothing ends a reference: stage ")
			require.Greater(t, m.Peak, plain.Peak)
			require.LessOrEqual(t, m.Peak, plain.Peak+microbatches*kept)
		})
	}
}

// The error names the stage that lacks the guard.
func TestErrorsNameTheStage(t *testing.T) {
	text := leaks(t, "-microbatches", "2")
	for _, stage := range []string{"stage 4 (head)", "stage 1 (block0)", "stage 2 (fused)"} {
		require.Equal(t, 2, strings.Count(text, stage), "%s, by the books and by the dry run:\n%s", stage, text)
	}
}

func TestLogs(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	text := leaks(t, "-microbatches", "6", "-log", folder)
	for name := range keeps() {
		require.FileExists(t, filepath.Join(folder, name+".jsonl"))
	}
	require.Contains(t, text, "go run ./cmd/weir mem log "+filepath.Join(folder, "fuser.jsonl"))
	log, err := os.ReadFile(filepath.Join(folder, "kept-loss.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(log), `"name":"stage 3 (block1): activation of F","class":"activation","bytes":98304,"buffers":6,"first":0,"last":5`)
}

func TestMisuse(t *testing.T) {
	for _, args := range [][]string{{"-microbatches", "0"}, {"-microbatches", "99999999"}, {"what"}, {"-none"}, {"-refit", "-log", "x"}} {
		var out, errs bytes.Buffer
		require.Equal(t, 2, run(t.Context(), args, &out, &errs))
		require.NotEmpty(t, errs.String())
	}
	var out, errs bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-log", "/dev/null/x"}, &out, &errs))
	require.Zero(t, run(t.Context(), []string{"-help"}, &out, &errs))
}
