package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpenBLASThatIsNotThere checks that the program compiles, and reports an error for a library that does not exist.
func TestOpenBLASThatIsNotThere(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	library := filepath.Join(t.TempDir(), "lib/python3.13/site-packages/scipy_openblas32/lib/libscipy_openblas.so")
	require.NoError(t, os.MkdirAll(library, 0o777))
	p, err := newPeers(strings.TrimSuffix(library, "/lib/python3.13/site-packages/scipy_openblas32/lib/libscipy_openblas.so"))
	require.NoError(t, err)
	require.FileExists(t, p.program)
	_, err = p.openBLAS(job{}, "")
	require.ErrorContains(t, err, library)
	require.NoError(t, p.Close())
	require.NoFileExists(t, p.program)
}

func TestPeersThatAreNotThere(t *testing.T) {
	err := bench(options{threads: "1", all: true, peers: "/no/such", job: job{Microbatches: batch}}, new(bytes.Buffer))
	require.ErrorContains(t, err, "tests/bench/peers.sh sets them up")
}

// TestRatio checks that a ratio compares adjacent samples, so a minute in which everything is slow does not affect it.
func TestRatio(t *testing.T) {
	ours := []measurement{{Median: 10}, {Median: 2}, {Median: 30}}
	theirs := []measurement{{Median: 5}, {Median: 1}, {Median: 10}}
	require.Equal(t, 2.0, ratio(ours, theirs, byMedian))
	require.Equal(t, 10.0, middle(ours, byMedian))
}
