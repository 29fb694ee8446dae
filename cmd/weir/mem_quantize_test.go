package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The profile determines which stages compute on copies of their weights; --quantize
// determines only when the copies are made.
func TestMemPlanQuantizesWhatTemplatesSay(t *testing.T) {
	const plain = "../../docs/placement/profile.json"
	text, err := os.ReadFile(plain)
	require.NoError(t, err)
	copies := strings.Replace(string(text), `    {}
  ],`, `    {"quantizes":true}
  ],`, 1)
	copies = strings.Replace(copies, `{"name":"hidden","bytes":4194304,"class":"actgrad"}
          ],`, `{"name":"hidden","bytes":4194304,"class":"actgrad"},
            {"name":"copy","bytes":1048576,"class":"fp8"},
            {"name":"turned","bytes":1048576,"class":"fp8"}
          ],
          "quantize": {"events":["a3","a4"],"out":["3","4"],"forward":1},`, 1)
	file := filepath.Join(t.TempDir(), "copies.json")
	require.NoError(t, os.WriteFile(file, []byte(copies), 0o600))
	heights := map[string]int64{}
	for _, when := range []string{"", "before-use", "at-start"} {
		args := []string{"mem", "plan", "1f1b", "--ranks", "2", "--microbatches", "4", "--profile", file, "--json"}
		if when != "" {
			args = append(args, "--quantize", when)
		}
		stdout, stderr, status := weir("", args...)
		require.Zero(t, status, "%s: %s", when, stderr)
		var out struct {
			PerRank []struct{ Height int64 } `json:"per_rank"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &out))
		heights[when] = out.PerRank[1].Height
	}
	require.Equal(t, heights["before-use"], heights["at-start"])
	require.Equal(t, heights["before-use"], heights[""])
	without, stderr, status := weir("", "mem", "plan", "1f1b", "--ranks", "2", "--microbatches", "4", "--profile", plain, "--json")
	require.Zero(t, status, stderr)
	var out struct {
		PerRank []struct{ Height int64 } `json:"per_rank"`
	}
	require.NoError(t, json.Unmarshal([]byte(without), &out))
	require.Equal(t, out.PerRank[1].Height+2<<20, heights[""])

	_, stderr, status = weir("", "mem", "plan", "1f1b", "--ranks", "2", "--profile", plain, "--quantize", "at-start")
	require.Equal(t, 2, status)
	require.Contains(t, stderr, "--quantize: no stage of "+plain+" computes on copies of its weights")
}

// The error does not mention a profile if the costs have no copies of weights.
func TestMemPlanQuantizesWhatCostsSay(t *testing.T) {
	for costs, want := range map[string]string{
		`{"f":1,"saved":64}`: "--quantize: the costs have no copies of weights: give a stage forward_weights and backward_weights in bytes",
		`{"f":1,"saved":64,"forward_weights":32},{"f":1,"saved":64}`: "",
	} {
		file := filepath.Join(t.TempDir(), "costs.json")
		require.NoError(t, os.WriteFile(file, []byte(`{"schema":1,"scale":1,"stages":[`+costs+`]}`), 0o600))
		_, stderr, status := weir("", "mem", "plan", "1f1b", "--ranks", "2", "--costs", file, "--quantize", "at-start")
		require.Equal(t, want == "", status == 0, stderr)
		require.Contains(t, stderr, want)
	}
}
