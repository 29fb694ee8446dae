package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/traces/tracetest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// documentedRun returns the steps in docs/trace: 1F1B with varying times, and with a slow rank 2.
func documentedRun(t *testing.T) *tracetest.Steps {
	p, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 8})
	require.NoError(t, err)
	costs := &simulate.Costs{Unit: "ns", Latency: 600_000, Links: []simulate.LinkCosts{{From: 1, To: 2, Latency: 2_500_000}, {From: 2, To: 1, Latency: 2_500_000}}}
	for stage := range 4 {
		costs.Stages = append(costs.Stages, simulate.StageCosts{F: 10_000_000, B: 19_000_000})
		if stage == 2 {
			costs.Stages[2] = simulate.StageCosts{F: 14_000_000, B: 26_600_000}
		}
	}
	costs.Each = func(a schedule.Action) int64 {
		took := costs.Stages[a.Stage()].F
		if a.Kind() != schedule.F {
			took = costs.Stages[a.Stage()].B
		}
		return took + took*int64((7*a.Stage()+13*a.Microbatch()+5*int(a.Kind()))%9-4)/200
	}
	s, err := tracetest.Simulate(p, costs, 3)
	require.NoError(t, err)
	return s
}

// TestTraceFiles compares docs/trace with the output of the generator; -update writes the files.
func TestTraceFiles(t *testing.T) {
	s := documentedRun(t)
	for rank := range s.Events {
		name := fmt.Sprintf("../../docs/trace/rank%d.json.gz", rank)
		want := s.Kineto(rank, "gpu_user_annotation")
		if *testkit.Update {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			_, err := z.Write(want)
			require.NoError(t, err)
			require.NoError(t, z.Close())
			require.NoError(t, os.WriteFile(name, b.Bytes(), 0o644))
		}
		file, err := os.Open(name)
		require.NoError(t, err)
		z, err := gzip.NewReader(file)
		require.NoError(t, err)
		got, err := io.ReadAll(z)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		require.Equal(t, string(want), string(got), "go test ./cmd/weir -run TestTraceFiles -update writes %s", name)
	}
}

// With the costs that weir trace writes, weir sim computes the measured makespan. weir choose reads them, too.
func TestTrace(t *testing.T) {
	folder := t.TempDir()
	costs, page := filepath.Join(folder, "costs.json"), filepath.Join(folder, "page.html")
	stdout, stderr, status := weir("", "trace", "../../docs/trace", "--json", "--emit-costs", costs, "-o", page)
	require.Empty(t, stderr)
	require.Equal(t, good, status)
	var found struct {
		Measured, Simulated struct{ Makespan int64 }
		Straggler           struct {
			Rank   int
			Factor float64
		}
		Better struct {
			Name     string
			Makespan int64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &found))
	require.Equal(t, 2, found.Straggler.Rank)
	require.InDelta(t, 1.4, found.Straggler.Factor, 0.02)
	require.InEpsilon(t, found.Measured.Makespan, found.Simulated.Makespan, 0.01)
	require.Less(t, found.Better.Makespan, found.Simulated.Makespan)
	text := testkit.Read(t, page)
	require.Contains(t, text, `"name":"3 plan"`)

	stdout, stderr, status = weir("", "sim", "1f1b", "--ranks", "4", "--microbatches", "8", "--costs", costs, "--json")
	require.Equal(t, good, status, stderr)
	var sim struct{ Makespan float64 }
	require.NoError(t, json.Unmarshal([]byte(stdout), &sim))
	require.InEpsilon(t, float64(found.Measured.Makespan)/1e6, sim.Makespan, 0.01)
	_, stderr, status = weir("", "choose", "--ranks", "4", "--microbatches", "8", "--costs", costs)
	require.Equal(t, good, status, stderr)
	fails(t, misused, "no stage has saved bytes", "", "fit", "../../docs/fit/llama-3-8b.json", "--ranks", "4", "--microbatches", "8", "--seq", "8", "--costs", costs)
}

// The report names the location at which a trace deviates from its plan, and errors say how to correct the input.
func TestTraceStatus(t *testing.T) {
	folder := t.TempDir()
	plan, _, _ := weir("", "plan", "gpipe", "--ranks", "4", "--microbatches", "8")
	file := filepath.Join(folder, "plan.txt")
	require.NoError(t, os.WriteFile(file, []byte(plan), 0o600))
	stdout, stderr, status := weir("", "trace", "../../docs/trace/rank*.json.gz", "--plan", file, "--no-choose")
	require.Equal(t, good, status, stderr)
	require.Contains(t, stdout, "Rank 3 left the plan at 3B0, where the plan has 3F1.")
	require.NotContains(t, stdout, "order for these costs")
	byName, stderr, status := weir("", "trace", "../../docs/trace/rank*.json.gz", "--plan", "gpipe", "--no-choose")
	require.Equal(t, good, status, stderr)
	require.Contains(t, byName, "Rank 3 left the plan at 3B0, where the plan has 3F1.")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "rank0.json"), []byte(`{"traceEvents":[{"ph":"X"]}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rank1.json"), []byte(`{"traceEvents":[{"ph":"X","cat":"user_annotation","name":"gloo:send","pid":1,"tid":1,"ts":1,"dur":1}]}`), 0o600))
	_, stderr, status = weir("", "trace", folder+"/rank1.json")
	require.Equal(t, misused, status)
	require.Contains(t, stderr, "PyTorch 2.15 names the actions of its schedules except those of Schedule1F1B")
	page := []byte(testkit.Read(t, "../../docs/trace.md"))
	_, lines, _ := strings.Cut(stderr, "record anew:\n")
	require.Contains(t, string(page), lines, "the lines can be copied from the message")
	empty := t.TempDir()
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"../../docs/trace/rank1.json.gz ../../docs/trace/rank2.json.gz", misused, "no trace has stage 0: give the traces of all ranks"},
		{folder + "/rank0.json", misused, "rank0.json: not a trace"},
		{folder + "/none", misused, "no such file"},
		{empty, misused, "ends in .json, .json.gz or .jsonl: name the files"},
		{os.DevNull, misused, "the file is empty"},
		{file, misused, "expected an object"},
		{"../../docs/trace --ranks-per-host -1", misused, "give 1 or more"},
		{"../../docs/trace --plan zb-v", misused, "zb-v"},
		{"../../docs/trace --plan zbw", misused, "zbw"},
		{"../../docs/trace/rank1.json.gz --plan 1f1b", misused, "give a plan file"},
		{"../../docs/trace --pipeline 4", misused, "there are 1 parallel pipelines"},
		{"../../docs/trace -o " + folder + "/none/page.html", misused, "none"},
	} {
		_, stderr, status := weir("", append([]string{"trace"}, strings.Fields(c.args)...)...)
		require.Equal(t, c.status, status, "%s: %s", c.args, stderr)
		require.Contains(t, stderr, c.text, c.args)
	}
}
