// Package pytorch tests Weir's support for PyTorch against PyTorch itself.
package pytorch

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestModule runs check_module.py, which trains through python/weir_pipelining.py. PYTHON names
// a Python with torch.distributed.pipelining, python3 if it is not set, and ROOT a folder to
// change the root to first, as made by tests/bench/peers.sh.
func TestModule(t *testing.T) {
	root, python := os.Getenv("ROOT"), cmp.Or(os.Getenv("PYTHON"), "python3")
	command := func(args ...string) *exec.Cmd {
		args = append([]string{python}, args...)
		if root != "" {
			args = append([]string{"chroot", root}, args...)
		}
		return exec.CommandContext(t.Context(), args[0], args[1:]...)
	}
	if out, err := command("-c", "import torch.distributed.pipelining").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch 2.6 or later was found: name a Python that has it in PYTHON, or the root of its system in ROOT (%v: %s)", err, strings.TrimSpace(string(out)))
	}
	folder, err := os.MkdirTemp(filepath.Join(root, "/tmp"), "weir-pytorch-")
	require.NoError(t, err)
	defer os.RemoveAll(folder)
	plan, err := schedule.ZBV(schedule.Params{Placement: schedule.Wave(2, 4), Microbatches: 4})
	require.NoError(t, err)
	plan.Runtime = schedule.PyTorch
	plan, err = lower.Transfers(plan, 0)
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(folder, "v.csv"))
	require.NoError(t, err)
	require.NoError(t, format.Write(file, plan, format.Comms))
	require.NoError(t, file.Close())
	for _, name := range []string{"../../python/weir_pipelining.py", "check_module.py"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(name)), text, 0o644))
	}
	inside := "/" + strings.TrimPrefix(strings.TrimPrefix(folder, root), "/")
	out, err := command(inside+"/check_module.py", inside, inside+"/v.csv").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Log(strings.TrimSpace(string(out)))
}
