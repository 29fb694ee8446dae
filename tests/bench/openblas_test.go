package main

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program compiles, and says what is wrong with a library that is not there.
func TestOpenBLASThatIsNotThere(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	r, err := newRival("/no/such/libopenblas.so.0")
	require.NoError(t, err)
	require.FileExists(t, r.program())
	_, err = r.alone(subject{Name: "1×1×1", M: 1, N: 1, K: 1}, 1, options{})
	require.ErrorContains(t, err, "-openblas: 1×1×1")
	require.NoError(t, r.Close())
	require.NoFileExists(t, r.program())
}

func TestTableBesideOpenBLAS(t *testing.T) {
	var text bytes.Buffer
	table := table{out: &text}
	table.add(measurement{Name: "2×3×4", Threads: 2, MedianRate: 60, Peak: 50, Rival: "OpenBLAS 1", RivalRate: 40, Ratio: 1.5})
	require.NoError(t, table.err)
	require.Contains(t, text.String(), "OpenBLAS 1, medians of turns")
	require.Regexp(t, `2×3×4 +2 +60.0 +60% +40.0 +40% +1.50 +100.0`, text.String())
}
