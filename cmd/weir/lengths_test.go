package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/traces/tracetest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
)

const lengthCosts = `{"schema": 1, "unit": "ns", "latency": 10000, "per_mib": 20000, "stages": [
	{"f": 10000, "saved": 4096, "per_token": {"f": 200, "i": 200, "w": 150, "output": 8192, "gradient": 8192, "saved": 100000, "freed_by_i": 30000, "carry": 10000}, "per_square": {"f": 0.05, "i": 0.12}}]}`

// lengthFiles writes a file of costs and a file with the lengths of random microbatches.
func lengthFiles(t *testing.T, random *rand.Rand, microbatches int) (costs, file string) {
	folder := t.TempDir()
	costs, file = filepath.Join(folder, "costs.json"), filepath.Join(folder, "lengths.txt")
	require.NoError(t, os.WriteFile(costs, []byte(lengthCosts), 0o644))
	var text strings.Builder
	text.WriteString("# a microbatch a line\n\n")
	for range microbatches {
		fmt.Fprintf(&text, "%d, %d\n", 1+random.IntN(4000), 1+random.IntN(4000))
	}
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o644))
	return costs, file
}

// For microbatches of different lengths, weir sim reports the peaks that weir mem plan reports as bounds.
func TestPeaksOfLengths(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, name := range []string{"1f1b", "zb-h1", "gpipe", "interleaved", "zb-v"} {
		costs, file := lengthFiles(t, random, 4*(1+random.IntN(3)))
		flags := []string{name, "--ranks", "4", "--costs", costs, "--lengths", file, "--capacity", "1", "--json"}
		var sim struct {
			PerRank []struct {
				Peak int64 `json:"peak_bytes"`
			} `json:"per_rank"`
		}
		var plan struct {
			Ranks []struct {
				Bound int64 `json:"bound"`
			} `json:"per_rank"`
		}
		for command, into := range map[string]any{"sim": &sim, "mem plan": &plan} {
			out := succeeds(t, "", append(strings.Fields(command), flags...)...)
			require.NoError(t, json.Unmarshal([]byte(out), into))
		}
		require.Len(t, plan.Ranks, 4)
		for rank := range plan.Ranks {
			require.Equal(t, plan.Ranks[rank].Bound, sim.PerRank[rank].Peak, "%s, rank %d", name, rank)
		}
	}
}

// Errors about lengths name the line and the column, or the flag.
func TestLengthFaults(t *testing.T) {
	costs, file := lengthFiles(t, rand.New(rand.NewPCG(1, 1)), 6)
	bad := filepath.Join(t.TempDir(), "bad.txt")
	require.NoError(t, os.WriteFile(bad, []byte("1 2\n  7,x9 # no\n"), 0o644))
	plain := filepath.Join(t.TempDir(), "plain.json")
	require.NoError(t, os.WriteFile(plain, []byte(`{"schema": 1, "stages": [{"f": 1}]}`), 0o644))
	long, profile := filepath.Join(t.TempDir(), "long.txt"), "../../docs/profile/llama-profile.json"
	require.NoError(t, os.WriteFile(long, []byte("4096\n20000\n"), 0o644))
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"sim", "1f1b", "--costs", costs}, misused, "give the lengths of all 8 microbatches"},
		{[]string{"sim", "1f1b", "--costs", costs, "--lengths", file, "--microbatches", "8"}, misused, "lengths are given for 6 microbatches, but the plan has 8"},
		{[]string{"sim", "1f1b", "--costs", costs, "--lengths", bad}, misused, `bad.txt:2:5: found "x9", expected a length of 1 to`},
		{[]string{"sim", "1f1b", "--lengths", file}, misused, "give --costs whose stages have per_token"},
		{[]string{"sim", "1f1b", "--costs", plain, "--lengths", file}, misused, "the costs do not depend on them"},
		{[]string{"mem", "plan", "1f1b", "--costs", costs, "--lengths", file, "--what-if"}, misused, "--what-if: it changes the number of microbatches"},
		{[]string{"mem", "plan", "1f1b", "--costs", costs, "--lengths", file, "--shapes", "0"}, misused, "--shapes: the costs have the lengths"},
		{[]string{"mem", "plan", "1f1b", "--costs", costs, "--lengths", file, "--memory", "1MiB"}, atFault, "the plan does not fit the budget"},
		{[]string{"sim", "1f1b", "--costs", profile, "--lengths", long}, misused, "a sequence has 20000 tokens, and the profile holds from 2048 to 16384"},
		{[]string{"pack", long, "--ranks", "4", "--tokens", "40000", "--costs", profile}, atFault, "long.txt:2:1: a sequence has 20000 tokens, and the profile holds from 2048 to 16384"},
		{[]string{"mem", "plan", "1f1b", "--costs", profile, "--seq", "8192", "--layers", "8,8,8,7"}, misused, "the cut has 31 layers in 4 stages, but the model has 32 layers"},
	} {
		fails(t, test.status, test.want, "", test.args...)
	}
}

// weir choose cuts a profile into two stages a rank, because a profile has no number of stages.
func TestChooseCutsAProfile(t *testing.T) {
	c := &chooseCmd{Ranks: 4}
	c.Costs, c.Seq, c.Sequences, c.Teraflops, c.LinkRate = "../../docs/profile/llama-profile.json", 8192, 1, 400, 50e9
	costs, err := c.costs()
	require.NoError(t, err)
	require.Len(t, costs.Stages, 8)
}

// The costs that weir trace --lengths writes give each microbatch the time that it took in the run.
func TestTraceByLength(t *testing.T) {
	costs, file := lengthFiles(t, rand.New(rand.NewPCG(3, 3)), 8)
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 8})
	require.NoError(t, err)
	given, err := (&costFlags{Costs: costs, Lengths: file}).fromFile(4)
	require.NoError(t, err)
	given.PerMiB = 0
	steps, err := tracetest.Simulate(plan, given, 2)
	require.NoError(t, err)
	folder := t.TempDir()
	for rank := range 4 {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("rank%d.json", rank)), steps.Kineto(rank, "gpu_user_annotation"), 0o644))
	}
	written := filepath.Join(t.TempDir(), "costs.json")
	out := succeeds(t, "", "trace", folder, "--emit-costs", written, "--lengths", file, "--no-choose")
	require.Contains(t, out, "at most 0.0 % off the medians")
	got, err := (&costFlags{Costs: written}).fromFile(4)
	require.NoError(t, err)
	require.Equal(t, given.Lengths, got.Lengths)
	for stage := range 4 {
		for _, size := range append(got.Lengths, lengths.Of(9000)) {
			one, want := got.Stages[stage].At(size), given.Of(stage).At(size)
			require.InEpsilon(t, want.F, one.F, 0.001)
			require.InEpsilon(t, want.Backward(), one.Backward(), 0.001)
		}
	}
	fails(t, misused, "--lengths is for --emit-costs", "", "trace", folder, "--lengths", file)
	_, other := lengthFiles(t, rand.New(rand.NewPCG(3, 3)), 7)
	fails(t, misused, "has lengths of 7 microbatches, and the traces have 8", "", "trace", folder, "--lengths", other, "--emit-costs", written)
}

// weir fit treats costs with rates like the costs of a microbatch with the given sequences.
func TestFitByLength(t *testing.T) {
	costs, _ := lengthFiles(t, nil, 0)
	given, err := (&costFlags{Costs: costs}).fromFile(4)
	require.NoError(t, err)
	var plain bytes.Buffer
	require.NoError(t, simulate.WriteCosts(&plain, given.AtSize(lengths.Of(1024, 1024))))
	fit := func(costs string) string {
		return succeeds(t, "", "fit", "../../docs/fit/llama-3-8b.json", "--seq", "1024", "--microbatch-size", "2", "--costs", costs, "--json")
	}
	require.Equal(t, fit(testkit.File(t, "plain.json", plain.Bytes())), fit(costs))
}
