//go:build linux

package scaling_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/tests/toy"
)

// TestResidentMemoryIsFlat reads the kernel's figures for a separate process. Its resident memory during
// the last of 65,536 microbatches may exceed that during the last of 1,024 by at most 64 bytes per
// microbatch.
func TestResidentMemoryIsFlat(t *testing.T) {
	const small, large, bound = 1024, 65536, 64
	if os.Getenv("WEIR_RESIDENT") == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestResidentMemoryIsFlat$", "-test.v")
		child.Env = append(os.Environ(), "WEIR_RESIDENT=1")
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Logf("%s", out)
		return
	}
	var at int
	var resident int64
	model, r := open(t, func(_ *toy.Model, cfg *runner.Config[toy.T]) {
		cfg.Hooks.Microbatch = func(s *memory.Sample) {
			if s.Microbatch == at-1 {
				resident = residentBytes(t)
			}
		}
	})
	measure := func(m int) int64 {
		at = m
		_, err := r.Step(t.Context(), m, model.Source(-3))
		require.NoError(t, err)
		return resident
	}
	measure(small) // warm-up
	before := measure(small)
	slope := float64(measure(large)-before) / (large - small)
	fmt.Printf("resident memory: %d bytes at M = %d, %+.3f bytes per microbatch up to M = %d\n", before, small, slope, large)
	require.LessOrEqual(t, slope, float64(bound))
}

// residentBytes returns the resident memory of this process, after the garbage collector has
// returned as much as it can.
func residentBytes(t *testing.T) int64 {
	runtime.GC()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(string(bytes.Fields(status)[1]), 10, 64)
	require.NoError(t, err)
	return pages * int64(os.Getpagesize())
}
