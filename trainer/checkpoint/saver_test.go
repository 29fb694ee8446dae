package checkpoint_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// A Saver writes when its steps or its time have passed, and by default takes at most a
// hundredth of the time.
func TestSaver(t *testing.T) {
	const took = 3 * time.Second // duration of a checkpoint; a step takes a second
	for _, c := range []struct {
		name  string
		saver checkpoint.Saver
		want  []int64
	}{
		{"every 100 steps", checkpoint.Saver{Steps: 100}, []int64{100, 200, 300, 400, 500, 600}},
		{"every three minutes", checkpoint.Saver{Every: 3 * time.Minute}, []int64{180, 360, 540}},
		{"both", checkpoint.Saver{Steps: 250, Every: 3 * time.Minute}, []int64{180, 360, 540}},
		{"by default", checkpoint.Saver{}, []int64{60, 360, 660}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := c.saver
				s.Dir = dir
				var got []int64
				require.False(t, s.Due(0))
				for step := int64(1); step <= 660; step++ {
					time.Sleep(time.Second)
					if !s.Due(step) {
						continue
					}
					got = append(got, step)
					slow := safetensors.Load("x", []int{1}, func() ([]float32, error) {
						time.Sleep(took / 2) // it is called twice
						return []float32{float32(step)}, nil
					})
					require.NoError(t, s.Save(checkpoint.State{Step: step}, slow))
				}
				require.Equal(t, c.want, got)
			})
			all, err := checkpoint.All(dir)
			require.NoError(t, err)
			require.Len(t, all, 2, "by default two stay")
		})
	}
}

// Newest skips damaged checkpoints, reports them, and opens the newest whole one.
func TestNewest(t *testing.T) {
	dir := t.TempDir()
	_, _, err := checkpoint.Newest(dir)
	require.ErrorIs(t, err, checkpoint.ErrNone)
	for step := range int64(4) {
		save(t, dir, step, float32(step))
	}
	opened := func(step int64, faults ...string) {
		t.Helper()
		c, passed, err := checkpoint.Newest(dir)
		require.NoError(t, err)
		require.Equal(t, step, c.Step)
		require.NoError(t, c.Close())
		if len(faults) == 0 {
			require.NoError(t, passed)
		}
		for _, fault := range faults {
			require.ErrorContains(t, passed, fault)
			require.ErrorIs(t, passed, checkpoint.ErrDamaged)
		}
	}
	shard := func(step string) string {
		found, err := filepath.Glob(filepath.Join(dir, step, "rank-*"))
		require.NoError(t, err)
		return found[0]
	}
	opened(3)
	content, err := os.ReadFile(shard("step-0000000003"))
	require.NoError(t, err)
	content[len(content)-1] ^= 1
	require.NoError(t, os.WriteFile(shard("step-0000000003"), content, 0o666))
	opened(2, "its SHA-256 is")
	require.NoError(t, os.Remove(shard("step-0000000002")))
	opened(1, "its SHA-256 is", "it is missing")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "step-0000000003")))
	opened(1, "it is missing")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "latest"), nil, 0o666))
	opened(1, "it is missing")
	save(t, dir, 2, 20) // the run resumes from step 1
	opened(2)
	for _, step := range []string{"step-0000000002", "step-0000000001", "step-0000000000"} {
		require.NoError(t, os.WriteFile(shard(step), nil, 0o666))
	}
	_, _, err = checkpoint.Newest(dir)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
}

// Without the file that names the latest checkpoint, Newest opens the newest whole one, and a
// new run in the same folder removes none of them.
func TestLatestIsLost(t *testing.T) {
	dir := t.TempDir()
	for step := range int64(11) {
		save(t, dir, step, float32(step))
	}
	require.NoError(t, checkpoint.Prune(dir, 2))
	require.NoError(t, os.Remove(filepath.Join(dir, "latest")))
	shards(t, dir, 12, 12) // never committed
	require.NoError(t, checkpoint.Prune(dir, 1), "no file names the latest checkpoint")
	all, err := checkpoint.All(dir)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "step-0000000010"), filepath.Join(dir, "step-0000000009")}, all)
	c, first, err := read(dir)
	require.NoError(t, err)
	require.EqualValues(t, 10, c.Step)
	require.Equal(t, float32(10), first)
	opened := func(want int64) {
		t.Helper()
		c, _, err := checkpoint.Newest(dir)
		require.NoError(t, err)
		require.Equal(t, want, c.Step)
		require.NoError(t, c.Close())
	}
	opened(10)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "step-0000000010", "manifest.json"), nil, 0o666))
	opened(9)
	s := checkpoint.Saver{Dir: dir, Keep: 1}
	for step := range int64(3) {
		require.NoError(t, s.Save(checkpoint.State{Step: step}, safetensors.Of("x", []int{1}, []float32{1})))
	}
	require.Equal(t, []string{"latest", "step-0000000002", "step-0000000009", "step-0000000010", "step-0000000012"}, names(t, dir))
	opened(2)
}

// A shard that does not fit on the disk is rejected before any byte of it is written.
func TestNoSpace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoints")
	if _, known := atomicfile.Free(t.TempDir()); !known {
		t.Skip("the system does not report free space")
	}
	save(t, dir, 1, 1)
	huge := safetensors.Load("x", []int{1 << 30, 1 << 20}, func() ([]float32, error) { panic("it is not fetched") })
	err := checkpoint.Save(dir, checkpoint.State{Step: 2}, huge)
	require.ErrorIs(t, err, checkpoint.ErrSpace)
	require.Equal(t, []string{"latest", "step-0000000001"}, names(t, dir))
}
