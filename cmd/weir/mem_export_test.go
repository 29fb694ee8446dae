package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/tests/rewind"
)

// figures writes the profile of stages to a file and returns its name.
func figures(t *testing.T, stages int) string {
	t.Helper()
	plan := plantest.Named(t, "1f1b", stages, stages, 4)
	profile := layout.FromFigures(plan, []layout.Figures{{Output: 4096, Gradient: 4096, Input: 10240, Weight: 2048, Forward: 640, Backward: 1280}})
	name := filepath.Join(t.TempDir(), "profile.json")
	file, err := os.Create(name)
	require.NoError(t, err)
	require.NoError(t, layout.Write(file, profile))
	require.NoError(t, file.Close())
	return name
}

// TestMemExportSnapshot rewinds the snapshot of a planned step, as the viewer does. On every rank, nothing
// is live before or after the step, and all blocks are in one segment, as large as weir mem plan says.
func TestMemExportSnapshot(t *testing.T) {
	profile := figures(t, 4)
	args := []string{"1f1b", "--ranks", "4", "--microbatches", "6", "--profile", profile}
	stdout := succeeds(t, "", append([]string{"mem", "export", "--to", "snapshot"}, args...)...)
	s, err := snapshot.Read(strings.NewReader(stdout), snapshot.Limits{})
	require.NoError(t, err)
	plan := decoded[certificates](t, good, "", append([]string{"mem", "plan", "--json"}, args...)...)
	require.Len(t, s.Segments, 4)
	for rank, trace := range s.Traces {
		before, err := rewind.Segments(s, rank)
		require.NoError(t, err)
		require.Empty(t, before)
		require.Equal(t, plan.PerRank[rank].Height, s.Segments[rank].Size)
		require.Greater(t, len(trace), 60)
		var live, peak int64
		for _, e := range trace {
			switch e.Action {
			case snapshot.Alloc:
				live += e.Size
				peak = max(peak, live)
			case snapshot.FreeCompleted:
				live -= e.Size
			}
		}
		require.Zero(t, live)
		require.Equal(t, plan.PerRank[rank].Bound, peak)
	}
	found := succeeds(t, stdout, "mem", "leaks", "-")
	require.Contains(t, found, "found 6 microbatches: stage0/F:")
	require.NotContains(t, found, "grows by")
	e := s.Traces[1][2]
	require.Equal(t, "mb0/stage1/F", e.Frames[0].Filename)
	require.Regexp(t, "^(saved|workspace|activation|transfer):", e.Frames[0].Name)
}

func TestMemExportForms(t *testing.T) {
	profile, folder := figures(t, 2), t.TempDir()
	export := func(name string) []byte {
		path := filepath.Join(folder, name)
		stdout, stderr, status := weir("", "mem", "export", "1f1b", "--ranks", "2", "--profile", profile, "-o", path)
		require.Empty(t, stdout+stderr)
		require.Zero(t, status)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		return content
	}

	lines, err := csv.NewReader(bytes.NewReader(export("step.csv"))).ReadAll()
	require.NoError(t, err)
	require.Equal(t, []string{"rank", "change", "what", "buffer", "bytes", "offset", "class", "at", "name", "live"}, lines[0])
	live := map[string]int64{}
	for _, line := range lines[1:] {
		n, err := strconv.ParseInt(line[4], 10, 64)
		require.NoError(t, err)
		if line[2] == "free" {
			n = -n
		}
		live[line[0]] += n
		require.Equal(t, strconv.FormatInt(live[line[0]], 10), line[9])
	}
	require.Equal(t, map[string]int64{"0": 0, "1": 0}, live)

	var trace struct {
		TraceEvents []struct {
			Ph   string
			Args map[string]any
		}
	}
	require.NoError(t, json.Unmarshal(export("step.json"), &trace))
	require.Len(t, trace.TraceEvents, len(lines)-1+2)
	for _, value := range trace.TraceEvents[len(trace.TraceEvents)-1].Args {
		require.Zero(t, value, "nothing is left in the end")
	}

	_, err = snapshot.Read(bytes.NewReader(export("step.pickle")), snapshot.Limits{})
	require.NoError(t, err)

	fails(t, misused, `"step.txt" does not end in .pickle, .json or .csv`, "", "mem", "export", "1f1b", "--ranks", "2", "--profile", profile, "-o", "step.txt")
	_, _, status := weir("", "mem", "export", "1f1b", "--to", "csv", "--profile", "nowhere.json")
	require.Equal(t, misused, status)
}
