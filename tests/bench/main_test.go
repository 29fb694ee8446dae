package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tiny is a model that trains within a moment.
var tiny = configuration{Layers: 2, Heads: 2, Width: 16, Vocabulary: 50, Sequence: 12}

func TestMeasureStep(t *testing.T) {
	for _, threads := range []int{1, 2} {
		j := job{subject: subject{Kind: "step", Name: "tiny", configuration: tiny}, Threads: threads, Microbatches: batch / threads, Time: 1e-3, Profile: t.TempDir()}
		m, err := j.measure()
		require.NoError(t, err)
		require.GreaterOrEqual(t, m.Steps, 3)
		require.Greater(t, m.Best, 0.0)
		require.GreaterOrEqual(t, m.Best, m.Median)
		require.Greater(t, m.Arena, 4.0*4*50*16)
		require.Less(t, m.LastLoss, m.FirstLoss, "it does not learn the same four sequences")
		profile, err := os.ReadFile(filepath.Join(j.Profile, fmt.Sprintf("tiny-%d.pprof", threads)))
		require.NoError(t, err)
		require.Equal(t, []byte{0x1f, 0x8b}, profile[:2], "a profile is compressed by gzip")

		var text bytes.Buffer
		require.NoError(t, printStep(&text, m, true))
		require.Contains(t, text.String(), "\ntiny ")
	}
}

func TestMeasureProduct(t *testing.T) {
	for _, s := range products() {
		if s.M*s.N*s.K > 1<<20 {
			continue
		}
		m, err := job{Time: 1e-6}.of(s, 2).measure()
		require.NoError(t, err)
		require.Equal(t, s.Name, m.Name)
		require.GreaterOrEqual(t, m.Best, m.Median)
		require.Greater(t, m.Median, 0.0)

		var text bytes.Buffer
		require.NoError(t, printProduct(&text, m, true))
		require.Contains(t, text.String(), s.Name)
	}
}

// TestJob checks the names of the fields of a subject that peer.py reads.
func TestJob(t *testing.T) {
	text, err := json.Marshal(steps("g6 50k T64"))
	require.NoError(t, err)
	require.JSONEq(t, `[{"kind":"step","name":"g6 50k T64","layers":6,"heads":6,"width":384,"vocabulary":50257,"sequence":64,
		"transposed_a":false,"transposed_b":false,"accumulate":false}]`, string(text))
}

func TestMatches(t *testing.T) {
	require.Len(t, configurations, 8)
	matching := func(parts string) (n int) {
		for _, c := range configurations {
			if c.matches(parts) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 8, matching(""))
	require.Equal(t, 4, matching("g4"))
	require.Equal(t, 1, matching("g6,50k T64"))
	require.Equal(t, 0, matching("T6"))
}

func TestFlagsThatAreWrong(t *testing.T) {
	for _, threads := range []string{"", "0", "two", "1,"} {
		require.ErrorContains(t, bench(options{threads: threads, job: job{Microbatches: 1}}, new(bytes.Buffer)), "-threads")
	}
	require.ErrorContains(t, bench(options{threads: "1", job: job{Microbatches: 3}}, new(bytes.Buffer)), "-microbatches")
	require.ErrorContains(t, bench(options{child: "g9"}, new(bytes.Buffer)), "-child")
}

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
