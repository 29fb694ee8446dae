package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

func TestCheckpointVerify(t *testing.T) {
	dir := t.TempDir()
	for step := range int64(2) {
		require.NoError(t, checkpoint.Save(dir, checkpoint.State{Step: step}, safetensors.Of("x", []int{3}, []float32{1, 2, 3})))
	}
	stdout := succeeds(t, "", "checkpoint", "verify", dir)
	require.Contains(t, stdout, "step-0000000001  whole  after step 1  1 shard  1 tensor  ")

	shards, err := filepath.Glob(filepath.Join(dir, "step-0000000001", "rank-*"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(shards[0], nil, 0o666))
	stdout, stderr, status := weir("", "checkpoint", "verify", dir)
	require.Equal(t, atFault, status)
	require.Regexp(t, `step-0000000001  damaged\n.*step-0000000000  whole  after step 0`, stdout)
	require.Contains(t, stderr, shards[0]+": it has 0 bytes")
	stdout, _, status = weir("", "checkpoint", "verify", "--json", dir)
	require.Equal(t, atFault, status)
	require.Contains(t, stdout, `"whole": false`)

	for _, path := range []string{t.TempDir(), filepath.Join(dir, "none")} {
		fails(t, misused, path, "", "checkpoint", "verify", path)
	}
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "step-0000000001")))
	_, stderr, status = weir("", "checkpoint", "verify", dir)
	require.Equal(t, atFault, status)
	require.Contains(t, stderr, "step-0000000001", "the latest is missing")
}
