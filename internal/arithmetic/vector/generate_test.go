package vector_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The files in the tree equal the output of the generator.
func TestGenerateLeavesTheTreeClean(t *testing.T) {
	folder := t.TempDir()
	program := filepath.Join(folder, "gen")
	out, err := exec.Command("go", "build", "-o", program, "./gen").CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.Command(program)
	run.Dir = folder
	out, err = run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Remove(program))
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 4)
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(folder, f.Name()))
		require.NoError(t, err)
		got, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run go generate", f.Name())
	}
}
