package ptx_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	interpreter "github.com/weir-ml/weir/kernels/cuda/internal/ptx"
	"github.com/weir-ml/weir/kernels/cuda/ptx"
)

// The PTX is the output of generate.sh for the sources. The test fails if a source has changed
// since, or if the PTX was edited by hand.
func TestSourcesAreThoseOfThePTX(t *testing.T) {
	hashes, err := fs.ReadFile(ptx.Files, "hashes.txt")
	require.NoError(t, err)
	var files strings.Builder
	for _, pattern := range []string{"*.cu", "*.h", "*.ptx"} {
		names, err := fs.Glob(ptx.Files, pattern)
		require.NoError(t, err)
		for _, name := range names {
			text, err := fs.ReadFile(ptx.Files, name)
			require.NoError(t, err)
			fmt.Fprintf(&files, "%x  %s\n", sha256.Sum256(text), name)
		}
	}
	require.Equal(t, string(hashes), files.String(), "run kernels/cuda/ptx/generate.sh")
}

// The kernels use only the part of PTX that the interpreter runs: no approximate instruction,
// and no atomic on floats.
func TestKernelsHaveDefiniteValues(t *testing.T) {
	names, err := fs.Glob(ptx.Files, "*.ptx")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, name := range names {
		text, err := fs.ReadFile(ptx.Files, name)
		require.NoError(t, err)
		m, err := interpreter.Parse(text)
		require.NoError(t, err, name)
		for _, k := range m.Kernels {
			require.False(t, seen[k.Name], "two kernels are called %s", k.Name)
			seen[k.Name] = true
			for i, p := range k.Params {
				require.LessOrEqual(t, p.Size, 8, "%s: parameter %d is more than a word", k.Name, i)
			}
			require.LessOrEqual(t, k.Shared, 48<<10, "%s: static shared memory", k.Name)
		}
	}
}
