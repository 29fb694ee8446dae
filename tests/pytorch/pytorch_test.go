// Package pytorch tests Weir's support for PyTorch against PyTorch itself.
package pytorch

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/timing"
	"github.com/weir-ml/weir/internal/traces"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
)

// python returns the root folder and a function that makes commands of the Python in it.
func python(t *testing.T) (root string, command func(args ...string) *exec.Cmd) {
	root = os.Getenv("ROOT")
	return root, func(args ...string) *exec.Cmd {
		args = append([]string{cmp.Or(os.Getenv("PYTHON"), "python3")}, args...)
		if root != "" {
			args = append([]string{"chroot", root}, args...)
		}
		return exec.CommandContext(t.Context(), args[0], args[1:]...)
	}
}

// copied copies files to a new folder in the root, and returns its path and its path inside of the root.
func copied(t *testing.T, root string, files ...string) (folder, inside string) {
	folder, err := os.MkdirTemp(filepath.Join(root, "/tmp"), "weir-pytorch-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(name)), text, 0o644))
	}
	return folder, "/" + strings.TrimPrefix(strings.TrimPrefix(folder, root), "/")
}

// The traces of every schedule class of PyTorch are complete steps: it names their actions, or
// internal/traces/annotate.py does.
func TestTraces(t *testing.T) {
	root, command := python(t)
	if out, err := command("-c", "import torch; assert tuple(map(int, torch.__version__.split('.')[:2])) >= (2, 15)").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch 2.15 or later was found: name a Python that has it in PYTHON (%v: %s)", err, strings.TrimSpace(string(out)))
	}
	folder, inside := copied(t, root, "../../internal/traces/annotate.py", "trace_schedules.py")
	const ranks = 2
	started := make([]*exec.Cmd, ranks)
	for rank := range started {
		started[rank] = command(inside+"/trace_schedules.py", inside, strconv.Itoa(rank), strconv.Itoa(ranks))
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
		all, err := traces.Read(filepath.Join(folder, name))
		require.NoError(t, err, name)
		report, err := timing.Analyze(timing.Request{Traces: all})
		require.NoError(t, err, name)
		require.Empty(t, report.Refused, name)
		require.Equal(t, []int{ranks, stages, 4, 2}, []int{report.Ranks, report.Stages, report.Microbatches, len(report.Steps)}, name)
	}
}

// TestModule runs check_module.py, which trains through python/weir_pipelining.py. PYTHON names
// a Python with torch.distributed.pipelining, python3 if it is not set, and ROOT a folder to
// change the root to first, as made by tests/bench/peers.sh.
func TestModule(t *testing.T) {
	root, command := python(t)
	if out, err := command("-c", "import torch.distributed.pipelining").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch 2.6 or later was found: name a Python that has it in PYTHON, or the root of its system in ROOT (%v: %s)", err, strings.TrimSpace(string(out)))
	}
	folder, inside := copied(t, root, "../../python/weir_pipelining.py", "check_module.py")
	plan, err := schedule.ZBV(schedule.Params{Placement: schedule.Wave(2, 4), Microbatches: 4})
	require.NoError(t, err)
	plan.Runtime = schedule.PyTorch
	plan, err = lower.Transfers(plan, 0)
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(folder, "v.csv"))
	require.NoError(t, err)
	require.NoError(t, format.Write(file, plan, format.Comms))
	require.NoError(t, file.Close())
	out, err := command(inside+"/check_module.py", inside, inside+"/v.csv").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Log(strings.TrimSpace(string(out)))
}
