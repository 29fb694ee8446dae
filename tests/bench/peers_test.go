package main

import (
	"bytes"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program compiles, and reports a library that does not exist.
func TestOpenBLASThatIsNotThere(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("there is no C compiler")
	}
	p, err := newPeers("")
	require.NoError(t, err)
	require.FileExists(t, p.program)
	_, err = p.run(nil, nil, p.program, "/no/such/libopenblas.so.0", "1", "1", "1", "0", "0", "0", "1", "0", "0")
	require.ErrorContains(t, err, "/no/such/libopenblas.so.0: cannot open")
	require.NoError(t, p.Close())
	require.NoFileExists(t, p.program)
}

func TestPeersThatAreNotThere(t *testing.T) {
	err := run(options{threads: "1", all: true, peers: "/no/such"}, new(bytes.Buffer))
	require.ErrorContains(t, err, "tests/bench/peers.sh sets them up")
}

// A ratio compares adjacent samples: a minute in which everything is slow does not affect it.
func TestRatio(t *testing.T) {
	ours := []measurement{{Median: 10}, {Median: 2}, {Median: 30}}
	theirs := []measurement{{Median: 5}, {Median: 1}, {Median: 10}}
	require.Equal(t, 2.0, ratio(ours, theirs, byMedian))
	require.Equal(t, 10.0, middle(ours, byMedian))
}
