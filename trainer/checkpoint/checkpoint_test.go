package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// save writes a checkpoint of two ranks, in which the elements of each tensor ascend from value.
func save(t testing.TB, dir string, step int64, value float32) {
	t.Helper()
	require.NoError(t, checkpoint.Commit(dir, checkpoint.State{Step: step, Seed: 1<<64 - 1, Metadata: map[string]string{"text": "a \"b\" <c>\u2028"}}, shards(t, dir, step, value)...))
}

// shards writes the shards of two ranks concurrently.
func shards(t testing.TB, dir string, step int64, value float32) []checkpoint.Shard {
	t.Helper()
	written, faults := make([]checkpoint.Shard, 2), make([]error, 2)
	var ranks sync.WaitGroup
	for rank := range written {
		ranks.Go(func() {
			of := func(name string, n int) safetensors.Tensor {
				return safetensors.Of(name+string(rune('0'+rank)), []int{n}, bytesOf(value, n))
			}
			written[rank], faults[rank] = checkpoint.WriteShard(dir, step, rank, 2, checkpoint.Whole(of("weight", 5), of("moment", 3))...)
		})
	}
	ranks.Wait()
	for _, err := range faults {
		require.NoError(t, err)
	}
	return written
}

func bytesOf(value float32, n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = value + float32(i)
	}
	return values
}

// read opens a checkpoint, reads all tensors, and returns the first element of the last one.
func read(path string) (c *checkpoint.Checkpoint, first float32, err error) {
	if c, err = checkpoint.Open(path); err != nil {
		return nil, 0, err
	}
	defer c.Close()
	for _, tensor := range c.Tensors() {
		values := make([]float32, tensor.Shape[0])
		if err := checkpoint.Read(c, tensor.Name, tensor.Shape, values); err != nil {
			return nil, 0, err
		}
		first = values[0]
	}
	return c, first, c.Verify()
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	_, _, err := read(dir)
	require.ErrorIs(t, err, checkpoint.ErrNone)
	_, _, err = read(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, checkpoint.ErrNone)
	require.ErrorIs(t, err, os.ErrNotExist)

	save(t, dir, 7, 10)
	c, first, err := read(dir)
	require.NoError(t, err)
	require.Equal(t, checkpoint.State{Step: 7, Seed: 1<<64 - 1, Metadata: map[string]string{"text": "a \"b\" <c>\u2028"}}, c.State)
	require.Equal(t, float32(10), first)
	require.Equal(t, []checkpoint.Tensor{
		{Name: "moment0", DType: "F32", Shape: []int{3}}, {Name: "weight0", DType: "F32", Shape: []int{5}},
		{Name: "moment1", DType: "F32", Shape: []int{3}}, {Name: "weight1", DType: "F32", Shape: []int{5}},
	}, c.Tensors())

	c, err = checkpoint.Open(dir)
	require.NoError(t, err)
	require.ErrorIs(t, checkpoint.Read(c, "weight2", []int{5}, make([]float32, 5)), checkpoint.ErrTensor)
	require.ErrorContains(t, checkpoint.Read(c, "weight1", []int{1, 5}, make([]float32, 5)), `"weight1" has the shape [5], not [1 5]`)
	require.ErrorIs(t, checkpoint.Read(c, "weight1", []int{5}, make([]int32, 5)), checkpoint.ErrTensor)
	require.NoError(t, c.Close())
	require.ErrorIs(t, checkpoint.Read(c, "weight0", []int{5}, make([]float32, 5)), os.ErrClosed)
}

// A checkpoint does not exist until it is committed, and writing a later step or the same step
// again does not damage an existing one.
func TestUncommitted(t *testing.T) {
	dir := t.TempDir()
	abandoned := shards(t, dir, 3, 1)
	_, _, err := read(dir)
	require.ErrorIs(t, err, checkpoint.ErrNone)
	save(t, dir, 3, 2)
	for _, s := range abandoned {
		require.NoFileExists(t, filepath.Join(dir, "step-0000000003", s.File), "the abandoned shard is removed")
	}
	for _, step := range []int64{3, 4, 2} {
		again := shards(t, dir, step, 100)
		_, first, err := read(dir)
		require.NoError(t, err)
		require.Equal(t, float32(2), first)
		require.NoError(t, os.Remove(filepath.Join(dir, "step-000000000"+string(rune('0'+step)), again[1].File)))
		err = checkpoint.Commit(dir, checkpoint.State{Step: step}, again...)
		require.ErrorIs(t, err, checkpoint.ErrDamaged)
		require.ErrorContains(t, err, again[1].File+": it is missing")
		_, first, err = read(dir)
		require.NoError(t, err)
		require.Equal(t, float32(2), first)
	}
	save(t, dir, 2, 50) // an earlier step is the latest checkpoint if it was written last
	c, first, err := read(dir)
	require.NoError(t, err)
	require.EqualValues(t, 2, c.Step)
	require.Equal(t, float32(50), first)
	_, first, err = read(filepath.Join(dir, "step-0000000003"))
	require.NoError(t, err)
	require.Equal(t, float32(2), first)
}

// of describes a piece of a tensor of ten elements.
func of(name string, first, count int) checkpoint.Tensor {
	return checkpoint.Tensor{Name: name, DType: "F32", Shape: []int{2, 5}, First: first, Count: count}
}

// pieced returns two shards that claim to have these tensors.
func pieced(shards []checkpoint.Shard, first, second checkpoint.Tensor) []checkpoint.Shard {
	shards = slices.Clone(shards)
	shards[0].Tensors, shards[1].Tensors = []checkpoint.Tensor{first}, []checkpoint.Tensor{second}
	return shards
}

// Ranks may share a tensor in any pieces. The whole tensor and each range of it are read only from the shards
// that have them.
func TestPieces(t *testing.T) {
	dir := t.TempDir()
	values := bytesOf(1, 10)
	cuts := []int{0, 1, 4, 4, 9, 10} // by rank; rank 2 has none of the elements
	var written []checkpoint.Shard
	for rank := range len(cuts) - 1 {
		pieces := checkpoint.Whole(safetensors.Of(fmt.Sprint("own", rank), []int{0}, []float32(nil)))
		// Each rank has two pieces, as a process with two replicas does.
		for _, cut := range [][2]int{{cuts[rank], (cuts[rank] + cuts[rank+1]) / 2}, {(cuts[rank] + cuts[rank+1]) / 2, cuts[rank+1]}} {
			if cut[0] < cut[1] {
				pieces = append(pieces, checkpoint.Range("w", []int{2, 5}, cut[0], cut[1]-cut[0], func() ([]float32, error) { return values[cut[0]:cut[1]], nil }))
			}
		}
		shard, err := checkpoint.WriteShard(dir, 3, rank, len(cuts)-1, pieces...)
		require.NoError(t, err)
		written = append(written, shard)
	}
	require.NoError(t, checkpoint.Commit(dir, checkpoint.State{Step: 3}, written...))

	c, err := checkpoint.Open(dir)
	require.NoError(t, err)
	require.Contains(t, c.Tensors(), checkpoint.Tensor{Name: "w", DType: "F32", Shape: []int{2, 5}})
	require.Len(t, c.Tensors(), len(cuts))
	whole := make([]float32, 10)
	require.NoError(t, checkpoint.Read(c, "w", []int{2, 5}, whole))
	require.Equal(t, values, whole)
	require.NoError(t, checkpoint.Read(c, "own2", []int{0}, []float32(nil)))
	for first := range 11 {
		for end := first; end <= 10; end++ {
			part := make([]float32, end-first)
			require.NoError(t, checkpoint.ReadRange(c, "w", []int{2, 5}, first, part))
			require.Equal(t, values[first:end], part)
		}
	}
	for first, n := range map[int]int{-1: 1, 10: 1, 0: 11, 5: 6, math.MaxInt: 1} {
		require.ErrorIs(t, checkpoint.ReadRange(c, "w", []int{2, 5}, first, make([]float32, n)), checkpoint.ErrTensor)
	}
	require.ErrorIs(t, checkpoint.ReadRange(c, "w", []int{10}, 0, make([]float32, 1)), checkpoint.ErrTensor)
	require.ErrorIs(t, checkpoint.Read(c, "w", []int{2, 5}, make([]float32, 9)), checkpoint.ErrTensor)
	require.ErrorIs(t, checkpoint.ReadRange(c, "w", []int{2, 5}, 0, make([]int32, 1)), checkpoint.ErrTensor)
	require.NoError(t, c.Close())

	damaged := filepath.Join(c.Path, written[3].File) // elements 4 to 9
	content := []byte(testkit.Read(t, damaged))
	content[len(content)-1] ^= 1
	require.NoError(t, os.WriteFile(damaged, content, 0o666))
	c, err = checkpoint.Open(dir)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, checkpoint.ReadRange(c, "w", []int{2, 5}, 0, make([]float32, 4)))
	require.NoError(t, checkpoint.ReadRange(c, "w", []int{2, 5}, 9, make([]float32, 1)))
	err = checkpoint.ReadRange(c, "w", []int{2, 5}, 3, make([]float32, 2))
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, damaged)
	require.NoError(t, os.Remove(damaged))
	_, err = checkpoint.Open(dir)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, damaged+": it is missing")
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	two := shards(t, dir, 1, 1)
	twice := []checkpoint.Shard{two[0], two[1]}
	twice[1].Tensors = two[0].Tensors
	for want, list := range map[string][]checkpoint.Shard{
		"there is no shard":                                         nil,
		"rank 0 of 2 among 1 shards":                                {two[0]},
		"rank 0 of 2 among 2 shards":                                {two[0], two[0]},
		`tensor "moment0" is in two`:                                twice,
		`"a" is in two shards from element 3 on`:                    pieced(two, of("a", 0, 5), of("a", 3, 7)),
		`"a" is in two shards from element 0 on`:                    pieced(two, of("a", 0, 10), of("a", 0, 0)),
		`"a" has its elements 4 to 5 in no shard`:                   pieced(two, of("a", 5, 5), of("a", 0, 4)),
		`"a" has its elements 9 to 10 in no shard`:                  pieced(two, of("a", 0, 4), of("a", 4, 5)),
		`"a" of shape [2 5] has no elements 4 to 11`:                pieced(two, of("a", 0, 4), of("a", 4, 7)),
		`"a" of shape [2 5] has no elements -1 to 9`:                pieced(two, of("a", -1, 10), of("a", 9, 1)),
		`"a" of shape [2 5] has no elements 2 to 2`:                 pieced(two, of("a", 2, 0), of("a", 0, 2)),
		`"a" of shape [9223372036854775807 4] has no`:               pieced(two, checkpoint.Tensor{Name: "a", DType: "F32", Shape: []int{math.MaxInt, 4}}, of("b", 0, 0)),
		`"a" is F32 of shape [2 5] in one shard, U8 of shape [2 5]`: pieced(two, of("a", 0, 5), checkpoint.Tensor{Name: "a", DType: "U8", Shape: []int{2, 5}, First: 5, Count: 5}),
		`F32 of shape [2 5] in one shard, F32 of shape [10]`:        pieced(two, of("a", 0, 5), checkpoint.Tensor{Name: "a", DType: "F32", Shape: []int{10}, First: 5, Count: 5}),
		`"../x" is not the name`:                                    {{Ranks: 1, File: "../x"}},
		`rank 1 of 1`:                                               {{Rank: 1, Ranks: 1, File: "x"}},
		"x: it is missing":                                          {{Ranks: 1, File: "x"}},
		"rank 1 of 3 among 2 shards: ea":                            {two[0], {Rank: 1, Ranks: 3, File: "x"}},
	} {
		require.ErrorContains(t, checkpoint.Commit(dir, checkpoint.State{Step: 1}, list...), want)
	}
	require.ErrorContains(t, checkpoint.Commit(dir, checkpoint.State{Step: 1, Metadata: map[string]string{"a": "\xff"}}, two...), "not UTF-8")
	for _, bad := range [][3]int{{-1, 0, 1}, {0, -1, 1}, {0, 1, 1}, {0, 0, 0}} {
		_, err := checkpoint.WriteShard(dir, int64(bad[0]), bad[1], bad[2])
		require.ErrorContains(t, err, "rank")
	}
	_, err := checkpoint.Open(dir)
	require.ErrorIs(t, err, checkpoint.ErrNone)
}

// A flipped bit in any byte of any file is detected, except in latest, whose format is checked. The
// error names the file.
func TestDamage(t *testing.T) {
	testkit.Slow(t)
	dir := t.TempDir()
	save(t, dir, 7, 1)
	folder := filepath.Join(dir, "step-0000000007")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 3)
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		whole := []byte(testkit.Read(t, path))
		fails := func(content []byte, how string, at int) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, content, 0o666))
			_, _, err := read(dir)
			require.Error(t, err, "%s: %s %d", path, how, at)
			require.ErrorContains(t, err, path, "%s %d", how, at)
			require.NotErrorAs(t, err, new(*json.SyntaxError))
		}
		for i := range whole {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			fails(bad, "bit of byte", i)
		}
		for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
			fails(whole[:n], "cut at", n)
		}
		fails(append(bytes.Clone(whole), ' '), "longer", 1)
		require.NoError(t, os.WriteFile(path, whole, 0o666))
		_, _, err = read(dir)
		require.NoError(t, err)
	}

	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		require.NoError(t, os.Rename(path, path+".away"))
		_, _, err = read(dir)
		require.Error(t, err)
		require.ErrorContains(t, err, strings.TrimSuffix(path, "/manifest.json"))
		require.NoError(t, os.Rename(path+".away", path))
	}
	for _, text := range []string{"", "\n", "step-7", "step-\n", "../step-7\n", "step-7/../..\n", strings.Repeat("step-", 100)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "latest"), []byte(text), 0o666))
		_, err := checkpoint.Open(dir)
		require.ErrorIs(t, err, checkpoint.ErrDamaged)
		require.ErrorContains(t, err, filepath.Join(dir, "latest"))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "latest"), []byte("step-1\n"), 0o666))
	_, err = checkpoint.Open(dir)
	require.ErrorIs(t, err, checkpoint.ErrNone)
	require.ErrorContains(t, err, "step-1")
}

// A shard is verified when it is needed: damage to one shard does not prevent reading the
// others, and Verify reports all.
func TestDamageOfOneShard(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 7, 1)
	files, err := filepath.Glob(filepath.Join(dir, "step-*", "rank-*"))
	require.NoError(t, err)
	flip := func(path string) {
		content := []byte(testkit.Read(t, path))
		content[len(content)-1] ^= 1
		require.NoError(t, os.WriteFile(path, content, 0o666))
	}
	flip(files[1])
	c, err := checkpoint.Open(dir)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, checkpoint.Read(c, "weight0", []int{5}, make([]float32, 5)))
	err = checkpoint.Read(c, "weight1", []int{5}, make([]float32, 5))
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, files[1])
	flip(files[0])
	again, err := checkpoint.Open(dir)
	require.NoError(t, err)
	defer again.Close()
	err = again.Verify()
	require.ErrorContains(t, err, files[0])
	require.ErrorContains(t, err, files[1])
}

func TestPrune(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "with [a] * in it")
	require.NoError(t, checkpoint.Prune(dir, 1))
	for _, step := range []int64{1, 2, 9, 3} { // 9 is from an earlier run
		save(t, dir, step, float32(step))
	}
	shards(t, dir, 1_000, 0)
	shards(t, dir, 0, 0)
	for _, other := range []string{"step-by-step", "step-1.txt", filepath.Join("step-0000000001", "notes.txt")} {
		path := filepath.Join(dir, other)
		if filepath.Ext(other) == "" {
			path = filepath.Join(path, "manifest.json")
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte("somebody's"), 0o666))
	}
	require.NoError(t, checkpoint.Prune(dir, 2))
	require.Equal(t, []string{"latest", "step-0000000001", "step-0000000002", "step-0000000003", "step-0000000009", "step-0000001000", "step-1.txt", "step-by-step"}, names(t, dir))
	require.NoError(t, checkpoint.Prune(dir, 0)) // the latest stays
	require.Equal(t, []string{"latest", "step-0000000001", "step-0000000003", "step-0000000009", "step-0000001000", "step-1.txt", "step-by-step"}, names(t, dir))
	require.Equal(t, []string{"notes.txt"}, names(t, filepath.Join(dir, "step-0000000001")), "a file that is not part of a checkpoint stays")
	require.Equal(t, []string{"manifest.json"}, names(t, filepath.Join(dir, "step-by-step")))
	_, first, err := read(dir)
	require.NoError(t, err)
	require.Equal(t, float32(3), first)
}

func names(t testing.TB, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}

// A file of weights written by another program is a checkpoint too.
func TestLoneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	var file bytes.Buffer
	require.NoError(t, safetensors.Write(&file, map[string]string{"steps": "3"}, safetensors.Of("w", []int{1}, []float32{4})))
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o666))
	c, first, err := read(path)
	require.NoError(t, err)
	require.Zero(t, c.Step)
	require.Equal(t, "3", c.Metadata["steps"])
	require.Equal(t, float32(4), first)
	require.NoError(t, os.WriteFile(path, file.Bytes()[:file.Len()-1], 0o666))
	_, _, err = read(path)
	require.ErrorIs(t, err, checkpoint.ErrDamaged)
	require.ErrorContains(t, err, path)
}

func FuzzManifest(f *testing.F) {
	dir := f.TempDir()
	save(f, dir, 7, 1)
	path := filepath.Join(dir, "step-0000000007", "manifest.json")
	whole, err := os.ReadFile(path)
	require.NoError(f, err)
	f.Add(whole)
	f.Add([]byte(`{"format":"weir.checkpoint","version":1,"sha256":"","shards":[]}`))
	f.Add([]byte(`{"format":"weir.checkpoint","version":2}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		require.NoError(t, os.WriteFile(path, content, 0o666))
		c, err := checkpoint.Open(dir)
		if err == nil {
			require.Equal(t, whole, content, "only the written content has this checksum")
			require.NoError(t, c.Close())
		}
	})
}

// TestFixtures compares a manifest, with the hashes of its shards, with the manifests of earlier versions. The
// random part of the shards' names is left out. Version 1 has no pieces.
func TestFixtures(t *testing.T) {
	dir := t.TempDir()
	save(t, dir, 7, 3)
	folder := filepath.Join(dir, "step-0000000007")
	path := filepath.Join(folder, "manifest.json")
	testkit.Format{
		Name: "manifest-%d.json", Mark: "\"version\": %d", Number: 2, Older: []int{1}, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			text := []byte(testkit.Read(t, path))
			for _, name := range regexp.MustCompile(`(rank-\d-of-2)-\w+`).FindAllSubmatch(text, -1) {
				require.NoError(t, os.Rename(filepath.Join(folder, string(name[0])+".safetensors"), filepath.Join(folder, string(name[1])+".safetensors")))
				text = bytes.Replace(text, name[0], name[1], 1)
			}
			own := text[:bytes.Index(text, []byte("shards"))]
			zeros := []byte(strings.Repeat("0", 64))
			copy(own[bytes.Index(own, []byte(`"sha256": "`))+len(`"sha256": "`):], zeros)
			return bytes.Replace(text, zeros, fmt.Appendf(nil, "%x", sha256.Sum256(text)), 1)
		},
		Read: func(text []byte) error {
			require.NoError(t, os.WriteFile(path, text, 0o666))
			_, first, err := read(dir)
			if err == nil {
				require.Equal(t, float32(3), first)
			}
			return err
		},
	}.Test(t)
}
