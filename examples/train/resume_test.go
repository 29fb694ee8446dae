package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/atomicfile"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// stopper is an output that cancels a run when it receives a word.
type stopper struct {
	bytes.Buffer
	word string
	stop context.CancelFunc
}

func (s *stopper) Write(p []byte) (int, error) {
	n, err := s.Buffer.Write(p)
	if strings.Contains(s.String(), s.word) {
		s.stop()
	}
	return n, err
}

// interruptedAt runs the tiny run and interrupts it when its output contains word.
func interruptedAt(t *testing.T, word string, flags ...string) (folder, stdout, stderr string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "run")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &stopper{word: word, stop: stop}
	var errs bytes.Buffer
	args := append(append(append([]string{}, tiny...), "-run", folder), flags...)
	require.Equal(t, launch.Interrupted, run(ctx, args, out, &errs), errs.String())
	return folder, out.String(), errs.String()
}

// resumed runs the program with a checkpoint, from which its flags come, and returns its summary.
func resumed(t *testing.T, flags ...string) (s summary) {
	t.Helper()
	var out, errs bytes.Buffer
	flags = append(flags, "-run", filepath.Join(t.TempDir(), "run"), "-json", "-")
	require.Zero(t, run(t.Context(), flags, &out, &errs), errs.String())
	require.NoError(t, json.Unmarshal(out.Bytes(), &s))
	return s
}

func TestInterruptAndResume(t *testing.T) {
	text, saved := sentence(t), filepath.Join(t.TempDir(), "checkpoint")
	whole := summaryOf(t, "-data", text)

	interim := filepath.Join(t.TempDir(), "interim.json")
	folder, stdout, stderr := interruptedAt(t, "step 1/3", "-data", text, "-checkpoint", saved, "-json", interim)
	require.Equal(t, "train: interrupted after step 1 of 3: everything is written\n", stderr)
	require.Contains(t, stdout, "0 bytes over ") // the table is there
	for _, name := range []string{"memory.jsonl", "losses.csv", "report.html"} {
		require.FileExists(t, filepath.Join(folder, name))
	}
	var s summary
	content := []byte(read(t, interim))
	require.NoError(t, json.Unmarshal(content, &s))
	require.True(t, s.Interrupted)
	require.Equal(t, 1, s.Steps)
	require.NotEqual(t, whole.WeightsSHA256, s.WeightsSHA256)

	// The flags come from the checkpoint; another plan changes nothing.
	s = resumed(t, "-data", text, "-resume", saved, "-plan", "breadth-first")
	require.Equal(t, 1, s.ResumedAt)
	require.Equal(t, 3, s.Steps)
	require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256)
	require.Equal(t, *whole.LossHeldout, *s.LossHeldout)
	require.Equal(t, *whole.LossTrain, *s.LossTrain)
}

func TestInterruptedBefore(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	folder := filepath.Join(t.TempDir(), "run")
	var out, errs bytes.Buffer
	require.Equal(t, launch.Interrupted, run(ctx, append([]string{"-data", sentence(t), "-run", folder}, tiny...), &out, &errs))
	require.Equal(t, "train: interrupted before the first step: nothing was written\n", errs.String())
	require.NoDirExists(t, folder)
}

func TestBadCheckpoint(t *testing.T) {
	text, saved := sentence(t), filepath.Join(t.TempDir(), "checkpoint")
	summaryOf(t, "-data", text, "-checkpoint", saved)
	shards, err := filepath.Glob(filepath.Join(saved, "step-*", "rank-*"))
	require.NoError(t, err)
	require.Len(t, shards, 1)
	whole := []byte(read(t, shards[0]))
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1000] ^= 1
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("hello, this is a text"), 0o666))
	var weights bytes.Buffer
	require.NoError(t, safetensors.Write(&weights, nil, safetensors.Of("w", []int{1}, []float32{1})))
	other := filepath.Join(t.TempDir(), "weights.safetensors")
	require.NoError(t, os.WriteFile(other, weights.Bytes(), 0o666))

	for _, c := range []struct {
		name  string
		shard []byte
		flags []string
		want  string
	}{
		{"truncated", whole[:len(whole)/2], nil, shards[0] + ": it has "},
		{"flipped bit", flipped, nil, shards[0] + ": its SHA-256 is "},
		{"empty", nil, nil, "damaged"},
		{"not a checkpoint", whole, []string{"-resume", file}, "damaged"},
		{"weights of another program", whole, []string{"-resume", other}, "is not a checkpoint of this program"},
		{"no checkpoint in it", whole, []string{"-resume", filepath.Dir(file)}, "there is none in "},
		{"another width", whole, []string{"-width", "16"}, "was trained with -width 8, not 16: leave -width out"},
		{"another text", whole, []string{"-data", shards[0], "-steps", "4"}, "another text"},
		{"finished", whole, nil, "has seen all 3 steps: give more with -steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(shards[0], c.shard, 0o666))
			if c.name == "flipped bit" {
				c.flags = []string{"-steps", "4"} // it is found when the shard is read
			}
			folder := filepath.Join(t.TempDir(), "run")
			var out, errs bytes.Buffer
			status := run(t.Context(), append([]string{"-data", text, "-resume", saved, "-run", folder}, c.flags...), &out, &errs)
			requireOneLine(t, status, errs.String(), c.want)
			require.NoDirExists(t, folder)
		})
	}
}

// A folder with checkpoints of an earlier run requires -resume: a run that would start at step
// 0 in it, or that resumes from another one, fails before anything is written.
func TestCheckpointsOfAnEarlierRun(t *testing.T) {
	text, saved, other := sentence(t), filepath.Join(t.TempDir(), "checkpoint"), filepath.Join(t.TempDir(), "other")
	interruptedAt(t, "step 1/3", "-data", text, "-checkpoint", saved)
	interruptedAt(t, "step 1/3", "-data", text, "-checkpoint", other)
	before, err := checkpoint.All(saved)
	require.NoError(t, err)
	for _, flags := range [][]string{{}, {"-resume", other}} {
		status, folder, _, stderr := runTiny(t, append(flags, "-data", text, "-checkpoint", saved)...)
		requireOneLine(t, status, stderr, "-checkpoint: "+saved+" has checkpoints of an earlier run, up to step-0000000001: give -resume "+saved+" to continue it, or name another folder")
		require.NoDirExists(t, folder)
		after, err := checkpoint.All(saved)
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
	require.Equal(t, 1, summaryOf(t, "-data", text, "-checkpoint", saved, "-resume", filepath.Join(saved, "step-0000000001")).ResumedAt)
	require.Equal(t, 3, summaryOf(t, "-data", text, "-checkpoint", saved, "-resume", saved).ResumedAt)
}

// A checkpoint in one file, as this program once wrote, resumes to the same bits. A checkpoint
// stores how a GPU multiplied, and a machine without a GPU resumes only if a flag says so.
func TestResumeOlderCheckpoint(t *testing.T) {
	text, dir, old := sentence(t), filepath.Join(t.TempDir(), "new"), filepath.Join(t.TempDir(), "old")
	whole := summaryOf(t, "-data", text)
	interruptedAt(t, "step 1/3", "-data", text, "-checkpoint", dir)
	c, err := checkpoint.Open(dir)
	require.NoError(t, err)
	defer c.Close()
	metadata := map[string]string{"format": "pt", "train.steps_done": "1"}
	maps.Copy(metadata, c.Metadata)
	var tensors []safetensors.Tensor
	for _, info := range c.Tensors() {
		n := 1
		for _, dim := range info.Shape {
			n *= dim
		}
		values := make([]float32, n)
		require.NoError(t, checkpoint.Read(c, info.Name, info.Shape, values))
		tensors = append(tensors, safetensors.Of(info.Name, info.Shape, values))
	}
	require.NoError(t, atomicfile.Write(old, func(w io.Writer) error { return safetensors.Write(w, metadata, tensors...) }))
	resumed := summaryOf(t, "-data", text, "-resume", old)
	require.Equal(t, 1, resumed.ResumedAt)
	require.Equal(t, whole.WeightsSHA256, resumed.WeightsSHA256)

	metadata["train.flag.products"] = "bfloat16"
	require.NoError(t, atomicfile.Write(old, func(w io.Writer) error { return safetensors.Write(w, metadata, tensors...) }))
	var out, errs bytes.Buffer
	status := run(t.Context(), append([]string{"-data", text, "-resume", old}, tiny...), &out, &errs)
	requireOneLine(t, status, errs.String(), "was trained with -products bfloat16, which -device cuda has: give -products float32")
	require.Equal(t, whole.WeightsSHA256, summaryOf(t, "-data", text, "-resume", old, "-products", "float32").WeightsSHA256)
}

func requireOneLine(t *testing.T, status int, stderr, want string) {
	t.Helper()
	require.Equal(t, 1, status)
	require.Contains(t, stderr, want)
	require.True(t, strings.HasPrefix(stderr, "train: "), stderr)
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
}
