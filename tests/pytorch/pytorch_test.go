// Package pytorch tests Weir's support for PyTorch against PyTorch itself. The tests that run
// PyTorch need the variable PYTHON, as .ci/torch sets it.
package pytorch

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// wrong lists the dumps of schedules that are wrong in PyTorch 2.15 itself, with the fault of each.
// Deferred receives have a different order from the other rank's sends, so ranks mistake gradients for outputs.
// In the list of computations that Schedule1F1B dumps, which differs from the list that it runs, the last rank
// has microbatches 1 to 8 instead of 0 to 7.
var wrong = map[string]string{
	"ZBVZeroBubble-2-defer-recv":         "2RECV_B0 receives 0SEND_F2, which rank 0 sent before 3SEND_B0",
	"InterleavedZeroBubble-2-defer-recv": "1RECV_F2 receives 2SEND_B0, which rank 0 sent before 0SEND_F2",
	"ZBVZeroBubble-4-defer-recv":         "6RECV_B0 receives 0SEND_F6, which rank 0 sent before 7SEND_B0",
	"DualPipeV-4-defer-recv":             "6RECV_B0 receives 0SEND_F6, which rank 0 sent before 7SEND_B0",
	"1F1B-2-compute":                     "1F8 belongs to an unknown microbatch",
	"1F1B-4-compute":                     "3F8 belongs to an unknown microbatch",
}

// TestDumps reads the files that PyTorch 2.15.0 dumps for each of its schedules on two ranks;
// dump_schedules.py has written them to testdata. The test proves each schedule or finds its fault,
// simulates and draws it, prepares it for Weir's runtime, and writes it again in both forms.
func TestDumps(t *testing.T) {
	require.Equal(t, 19, requireDumps(t, "testdata/torch-2.15.0"))
}

// requireDumps checks the dumps in a folder, and returns their number.
func requireDumps(t *testing.T, folder string) int {
	dumps, err := filepath.Glob(filepath.Join(folder, "*.csv"))
	require.NoError(t, err)
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 2, I: 2, W: 2, Output: 1, Gradient: 1, Saved: 4, FreedByI: 2}}, Latency: 1}
	for _, name := range dumps {
		title := strings.TrimSuffix(filepath.Base(name), ".csv")
		text := []byte(testkit.Read(t, name))
		file, err := format.Read(bytes.NewReader(text), format.Options{Name: name, Microbatches: 8})
		require.NoError(t, err)
		if fault := wrong[title]; fault != "" {
			require.ErrorContains(t, check.Plan(file.Plan), fault, title)
			continue
		}
		require.NoError(t, check.Plan(file.Plan), title)
		_, err = simulate.Run(file.Plan, costs, 0)
		require.NoError(t, err, title)
		step, err := draw.Simulate(file.Plan, costs, 0)
		require.NoError(t, err, title)
		require.NoError(t, step.SVG(io.Discard), title)
		weir, err := lower.ForRuntime(schedule.Weir, file.Plan, 1)
		require.NoError(t, err, title)
		require.NoError(t, check.Links(weir, 1), title)
		if file.Format == format.Compute {
			continue
		}
		var now, older strings.Builder
		require.NoError(t, format.Write(&now, file.Plan, format.Comms))
		require.NoError(t, format.Write(&older, file.Plan, format.Comms26))
		require.Equal(t, regexp.MustCompile(`,\d+WAIT_\w+`).ReplaceAllString(now.String(), ""), older.String(), title)
		written := map[format.Format]string{format.Comms: now.String(), format.Comms26: older.String()}
		require.Equal(t, strings.ReplaceAll(string(text), "\r\n", "\n"), written[file.Format], title)
		again, err := format.Read(strings.NewReader(now.String()), format.Options{})
		require.NoError(t, err, title)
		require.NoError(t, check.Plan(again.Plan), title)
	}
	return len(dumps)
}

// python returns a command that runs Python with these arguments in this folder, or skips the test.
func python(t *testing.T, args ...string) *exec.Cmd {
	name := os.Getenv("PYTHON")
	if name == "" {
		t.Skip("PYTHON names no Python with PyTorch: run .ci/torch, which installs the current one")
	}
	command := exec.CommandContext(t.Context(), name, args...)
	command.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=../../cmd/weir/internal/traces")
	return command
}

// command builds the command, and returns its path.
func command(t *testing.T) string {
	weir := filepath.Join(t.TempDir(), "weir")
	out, err := exec.Command("go", "build", "-o", weir, "../../cmd/weir").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return weir
}

// waits reports whether the installed PyTorch has waits in its plans, as it has from 2.15 on.
func waits(t *testing.T) bool {
	return python(t, "-c", "from torch.distributed.pipelining.schedules import WAIT_SEND_F").Run() == nil
}

// notHeld lists the schedules that PyTorch's runtime cannot run, with the reason.
var notHeld = map[string]string{
	"dualpipe": "a rank has stages of two copies of the model",
	"seq1f1b":  "a slice of a sequence needs what earlier slices of it have saved",
}

// TestPlans trains with plans of every schedule that PyTorch's runtime can run, and with a searched order,
// in both of PyTorch's forms and as plan files, on two and on four ranks. Losses and gradients have the
// same bits as those of the model without a pipeline, so weir.schedule computes the same bits as PyTorch's runtime.
func TestPlans(t *testing.T) {
	transfers := format.Comms26
	if waits(t) {
		transfers = format.Comms
	}
	folder, weir := t.TempDir(), command(t)
	var files []string
	write := func(name string, plan *schedule.Plan, form format.Format) {
		var text strings.Builder
		require.NoError(t, format.Write(&text, plan, form), name)
		path := filepath.Join(folder, name+"-"+form.String()+".csv")
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
		files = append(files, path)
	}
	all := func(name string, plan *schedule.Plan) {
		write(name, plan, format.Compute)
		if !plan.HasTransfers() {
			var err error
			plan, err = lower.Transfers(plan, 0)
			require.NoError(t, err, name)
		}
		write(name, plan, transfers)
		path := filepath.Join(folder, name+".json")
		out, err := exec.Command(weir, "convert", files[len(files)-1], "--to", "plan", "-o", path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		files = append(files, path)
	}
	for _, ranks := range []int{2, 4} {
		suffix := map[int]string{2: "-2", 4: "-4"}[ranks]
		for _, s := range schedule.Schedules() {
			if notHeld[s.Name] != "" {
				continue
			}
			place, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			plan, err := s.Rule(schedule.Params{Placement: place, Microbatches: 8})
			require.NoError(t, err)
			plan.Runtime = schedule.PyTorch
			all(s.Name+suffix, plan)
		}
		costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 10, I: 12, W: 7, Saved: 1, FreedByI: 1}}, Latency: 1}
		found, err := choose.Choose(choose.Request{Ranks: ranks, Stages: 2 * ranks, Microbatches: 8, Costs: costs, Runtime: schedule.PyTorch, Memory: 3})
		require.NoError(t, err)
		all("searched"+suffix, found.Best.Plan)
		reduced, err := schedule.ZBV(schedule.Params{Placement: schedule.Wave(ranks, 2*ranks), Microbatches: 8})
		require.NoError(t, err)
		if reduced, err = lower.Shard(reduced, 1); err == nil {
			reduced, err = lower.Reduce(reduced, 0)
		}
		require.NoError(t, err)
		reduced.Runtime = schedule.PyTorch
		all("zb-v-sharded"+suffix, reduced)
	}
	out, err := python(t, append([]string{"run_plan.py"}, files...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, len(files), strings.Count(string(out), ": same losses and gradients (largest difference 0.0e+00)"))
	for _, name := range slices.Sorted(maps.Keys(notHeld)) {
		t.Logf("not held by PyTorch's runtime: %s, because %s", name, notHeld[name])
	}
	t.Log(strings.TrimSpace(string(out)))
}

// TestRandomPlans runs random plans, both valid and broken, in PyTorch's own runtime. Each must complete,
// hang, fail or train with wrong gradients, as package check predicts.
func TestRandomPlans(t *testing.T) {
	plans := 40
	if *testkit.Long {
		plans = 1000
	}
	run := python(t, "random_plans.py", "--plans", strconv.Itoa(plans))
	run.Env = append(run.Env, "WEIR="+command(t))
	out, err := run.CombinedOutput()
	t.Log(strings.TrimSpace(string(out)))
	require.NoError(t, err)
}

// TestGrowth measures the growth of memory in a step of 64 microbatches under weir.schedule. The growth must be
// less than 1 KiB per microbatch; a tensor between stages has 64 KiB.
func TestGrowth(t *testing.T) {
	if !waits(t) {
		t.Skip("PyTorch before 2.15 keeps what is sent until the step ends")
	}
	path := filepath.Join(t.TempDir(), "growth.json")
	measure := python(t, "growth.py", "--schedules", "1f1b", "zb-v", "--ranks", "2", "--columns", "schedule", "--microbatches", "64", "--json", path)
	measure.Env = append(measure.Env, "WEIR="+command(t))
	out, err := measure.CombinedOutput()
	require.NoError(t, err, "%s", out)
	text := []byte(testkit.Read(t, path))
	var rows []struct{ Growth float64 }
	require.NoError(t, json.Unmarshal(text, &rows))
	require.Len(t, rows, 2)
	for _, row := range rows {
		require.Less(t, row.Growth, 1024.0, "%s", out)
	}
}

// TestOwnSchedules dumps the schedules of the installed PyTorch for two and four ranks, runs the checks of
// TestDumps on them, and compares those of 2.15 with testdata. It trains with schedules whose receives are
// deferred: gradients differ exactly if check finds a fault.
func TestOwnSchedules(t *testing.T) {
	folder := t.TempDir()
	out, err := python(t, "dump_schedules.py", folder).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.GreaterOrEqual(t, requireDumps(t, folder), 34)
	var kept []string
	if waits(t) {
		kept, err = filepath.Glob("testdata/torch-2.15.0/*.csv")
		require.NoError(t, err)
	}
	for _, name := range kept {
		want := testkit.Read(t, name)
		got := testkit.Read(t, filepath.Join(folder, filepath.Base(name)))
		require.Equal(t, want, got, name)
	}

	deferred, err := filepath.Glob(filepath.Join(folder, "*-defer-recv.csv"))
	require.NoError(t, err)
	out, _ = python(t, append([]string{"run_plan.py"}, deferred...)...).CombinedOutput()
	t.Log(strings.TrimSpace(string(out)))
	for _, name := range deferred {
		verdict := "same losses and gradients"
		if wrong[strings.TrimSuffix(filepath.Base(name), ".csv")] != "" {
			verdict = "DIFFERENT"
		}
		require.Regexp(t, regexp.QuoteMeta(filepath.Base(name))+`: .*: `+verdict, string(out))
	}
}

// TestTraces requires that the traces of every schedule class of PyTorch are complete steps. PyTorch annotates
// their actions, or cmd/weir/internal/traces/annotate.py does.
func TestTraces(t *testing.T) {
	if !waits(t) {
		t.Skip("PyTorch before 2.15 names its actions otherwise")
	}
	folder, weir := t.TempDir(), command(t)
	const ranks = 2
	started := make([]*exec.Cmd, ranks)
	for rank := range started {
		started[rank] = python(t, "trace_schedules.py", folder, strconv.Itoa(rank), strconv.Itoa(ranks))
		started[rank].Stderr = os.Stderr
		require.NoError(t, started[rank].Start())
	}
	for _, process := range started {
		require.NoError(t, process.Wait())
	}
	for name, stages := range map[string]int{
		"ScheduleGPipe": 2, "Schedule1F1B": 2, "ScheduleLoopedBFS": 4, "ScheduleInterleaved1F1B": 4,
		"ScheduleInterleavedZeroBubble": 4, "ScheduleZBVZeroBubble": 4, "ScheduleDualPipeV": 4,
	} {
		out, _ := exec.Command(weir, "trace", "--json", filepath.Join(folder, name)).Output() // a finding is an error
		var report struct {
			Ranks, Stages, Microbatches int
			Makespans                   []int64
			Refused                     string
		}
		require.NoError(t, json.Unmarshal(out, &report), name)
		require.Empty(t, report.Refused, name)
		require.Equal(t, []int{ranks, stages, 4, 2}, []int{report.Ranks, report.Stages, report.Microbatches, len(report.Makespans)}, name)
	}
}
