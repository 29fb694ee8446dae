package pytorch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/slots"
)

// slotsOf returns the numbers of slots of a kind of tensor in a CSV of PyTorch, by rank.
func slotsOf(t *testing.T, path string, tensor slots.Tensor) (counts []slots.Count) {
	in, err := os.Open(path)
	require.NoError(t, err)
	defer in.Close()
	file, err := format.Read(in, format.Options{Name: path})
	require.NoError(t, err)
	require.NoError(t, check.Plan(file.Plan))
	table, err := slots.Make(slots.Config{}, file.Plan)
	require.NoError(t, err)
	require.Empty(t, slots.Verify(table, 0, file.Plan))
	for _, n := range table.Counts {
		if n.Tensor == tensor {
			counts = append(counts, n)
		}
	}
	return counts
}

// TestReceiveSlots compares the receive buffers of plans that PyTorch 2.15.0 has lowered with the figures
// of two comments in pytorch/pytorch#196465 of 2026-09-16, for pools by stage and direction, by direction,
// and by rank.
func TestReceiveSlots(t *testing.T) {
	for file, want := range map[string][][3]int{
		"ZBVZeroBubble-4-2-8":   {{5, 5, 3}, {14, 14, 11}, {16, 16, 12}, {8, 8, 7}},       // 43, 43, 33
		"Interleaved1F1B-4-4-8": {{22, 14, 14}, {30, 20, 20}, {28, 17, 17}, {32, 18, 16}}, // 112, 69, 67
	} {
		var got [][3]int
		for _, n := range slotsOf(t, "testdata/slots/"+file+".csv", slots.Received) {
			got = append(got, [3]int{n.ByStage, n.ByDirection, n.ByRank})
		}
		require.Equal(t, want, got, file)
	}
}

// TestActivationSlots compares the numbers of slots for saved state with those that PyTorch computes for its own
// schedules.
func TestActivationSlots(t *testing.T) {
	python := os.Getenv("PYTHON")
	if python == "" {
		t.Skip("PYTHON names no Python with PyTorch")
	}
	folder := t.TempDir()
	if out, err := exec.Command(python, "liveness.py", folder).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "cannot import name 'analyze_pipeline_activation_liveness'") {
			t.Skip("this PyTorch does not analyze lifetimes")
		}
		require.NoError(t, err, "%s", out)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	require.NoError(t, err)
	require.Len(t, files, 33)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var want, got [][2]int
		require.NoError(t, json.Unmarshal(text, &want))
		for _, n := range slotsOf(t, strings.TrimSuffix(name, "json")+"csv", slots.Saved) {
			got = append(got, [2]int{n.ByStage, n.ByRank})
		}
		require.Equal(t, want, got, filepath.Base(name))
	}
}
