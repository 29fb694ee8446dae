// Package hang compares the reports of weir hang about real jobs of PyTorch with the faults that made them hang.
package hang

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestJobs runs jobs.py with the Python that PYTHON names, which must have PyTorch 2.15. It takes ten minutes.
func TestJobs(t *testing.T) {
	if !*testkit.Long {
		t.Skip("hangs jobs for ten minutes: run it with -long")
	}
	python := cmp.Or(os.Getenv("PYTHON"), "python3")
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import torch; assert torch.__version__.startswith('2.15.')").CombinedOutput(); err != nil {
		t.Skipf("no PyTorch 2.15 was found: name a Python that has it in PYTHON (%v: %s)", err, out)
	}
	folder := t.TempDir()
	weir := filepath.Join(folder, "weir")
	for _, args := range [][]string{{"go", "build", "-o", weir, "../../cmd/weir"}, {python, "jobs.py", weir, filepath.Join(folder, "dumps")}} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		t.Logf("%s", out)
		require.NoError(t, err)
	}
}
