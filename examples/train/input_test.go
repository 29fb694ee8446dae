package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/terminal"
)

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
		return path
	}
	empty := write("empty", "")
	short := write("short", "hello")
	write("binary/a.bin", "\x00\x01\x02")
	write("binary/.hidden", "text, but hidden")
	text := sentence(t)
	full := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(full, "memory.jsonl"), nil, 0o666))

	for _, c := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"empty file", []string{"-data", empty}, "is empty: name a file with text in it"},
		{"missing file", []string{"-data", filepath.Join(dir, "none")}, "name a file or a folder that exists"},
		{"folder without text", []string{"-data", filepath.Join(dir, "binary")}, "has no text files"},
		{"no microbatches", []string{"-microbatches", "0"}, "-microbatches is 0: give at least 1"},
		{"negative steps", []string{"-steps", "-1"}, "-steps is -1: give at least 1"},
		{"audits after the last step", []string{"-data", text, "-steps", "3", "-audit", "4"}, "-audit is 4: give at most 3, the number of steps"},
		{"short text", []string{"-data", short}, "longer than the data"},
		{"long sequence", []string{"-data", text, "-seq", "4000"}, "-seq 4000 is longer than the data"},
		{"heads", []string{"-width", "9"}, "-width 9 does not divide into -heads 2: take -width 8 or -width 10"},
		{"packer", []string{"-data", text, "-packer", "arrival"}, "-packer is for -pack: give it, or leave out -packer"},
		{"stages", []string{"-data", text, "-stages", "9"}, "-stages 9 is more than -layers 2 has parts for: take at most 4"},
		{"too large", []string{"-data", text, "-width", "1000000"}, "use a smaller -width or -seq, or fewer -layers"},
		{"size of logits", []string{"-keep-logits", "-2"}, "or -1 for none"},
		{"plan", []string{"-plan", "zb-vv"}, `there is no schedule "zb-vv"; did you mean zb-v?`},
		{"group", []string{"-plan", "breadth-first", "-group", "2"}, "-plan breadth-first has no groups: leave out -group 2"},
		{"group on ranks", []string{"-ranks", "2", "-group", "2"}, "has no groups: leave out -group 2"},
		{"cap", []string{"-cap", "2"}, "has a bound of its own in flight: leave out -cap 2"},
		{"slices", []string{"-ranks", "2", "-plan", "1f1b", "-slices", "2"}, "-plan 1f1b does not slice sequences: leave out -slices 2, or use seq1f1b"},
		{"descending", []string{"-descending"}, "-descending is for -plan breadth-first: leave it out"},
		{"no ranks", []string{"-ranks", "0"}, "-ranks is 0: give at least 1"},
		{"many ranks", []string{"-ranks", "1000"}, "-ranks is 1000: give at most 64"},
		{"stages of a wave", []string{"-ranks", "4", "-plan", "zb-v", "-stages", "4"}, "-stages: zb-v does not run 4 stages on 4 ranks: use 8 stages, two a rank"},
		{"stages of a chain", []string{"-ranks", "4", "-plan", "1f1b", "-stages", "3"}, "-stages: 1f1b does not run 3 stages on 4 ranks"},
		{"no stages", []string{"-stages", "0"}, "-stages is 0: give at least 1"},
		{"capacity", []string{"-ranks", "2", "-capacity", "-2"}, "-capacity is -2: give at least -1"},
		{"missing costs", []string{"-costs", filepath.Join(dir, "none")}, "-costs: " + filepath.Join(dir, "none") + ": no such file"},
		{"not costs", []string{"-costs", short}, "-costs: " + short + ":1:1: "},
		{"costs of other stages", []string{"-costs", write("costs", `{"schema": 1, "unit": "ns", "stages": [{"f": 1}, {"f": 1}]}`)}, "there are costs of 2 stages, but the plan has 4"},
		{"costs in minutes", []string{"-costs", write("minutes", `{"schema": 1, "unit": "minutes", "stages": [{"f": 1}]}`)}, `times are in "minutes": give ns, us, ms or s`},
		{"costs for nothing", []string{"-emit-costs", filepath.Join(dir, "c"), "-json", "-"}, "-emit-costs measures and does not train"},
		{"costs in no folder", []string{"-emit-costs", filepath.Join(dir, "none", "c"), "-run", ""}, "-emit-costs: " + filepath.Join(dir, "none", "c") + " cannot be written"},
		{"dropout", []string{"-dropout", "1"}, "-dropout is 1"},
		{"not a number", []string{"-lr", "NaN"}, "-help lists the flags"},
		{"two faults", []string{"-steps", "0", "-layers", "0"}, "-steps is 0: give at least 1; -layers is 0: give at least 1"},
		{"unknown flag", []string{"-depth", "3"}, "-help lists the flags"},
		{"argument", []string{"text"}, "not a flag"},
		{"missing checkpoint", []string{"-data", text, "-resume", filepath.Join(dir, "none")}, "none has no checkpoint: name a folder that -checkpoint has written"},
		{"checkpoint without a name", []string{"-data", text, "-resume", ""}, "-resume is empty: name a folder of checkpoints, or leave it out"},
		{"checkpoint forgotten", []string{"-data", text, "-resume", "-checkpoint", "c"}, "-resume is followed by -checkpoint: give it a value"},
		{"checkpoint in no folder", []string{"-data", text, "-checkpoint", filepath.Join(dir, "none", "c")}, "name a folder in a writable folder"},
		{"checkpoint below a file", []string{"-data", text, "-checkpoint", filepath.Join(text, "c")}, "cannot be written (not a directory): name a folder in a writable folder"},
		{"checkpoint is a file", []string{"-data", text, "-checkpoint", text}, "is not a folder: name one"},
		{"summary is a folder", []string{"-data", text, "-json", dir}, "is a folder: name a file"},
		{"run folder is a file", []string{"-data", text, "-run", short}, "name a folder that can be made"},
		{"run folder is taken", []string{"-data", text, "-run", full}, "memory.jsonl exists: name another folder with -run"},
		{"two outputs in one file", []string{"-data", text, "-checkpoint", filepath.Join(dir, "same"), "-json", filepath.Join(dir, "same")}, "-json and -checkpoint name the same file"},
		{"many microbatches", []string{"-data", text, "-microbatches", "99999999999"}, "-microbatches is 99999999999: give at most 268435456"},
		{"unknown recipe", []string{"-fp8", "int8", "-data", text}, `-fp8 is "int8": give none, delayed, current, block, mxfp8 or nvfp4`},
		{"attention without a recipe", []string{"-fp8-attention", "-data", text}, "-fp8-attention needs -fp8 delayed, current, block, mxfp8 or nvfp4"},
		{"width of a recipe", []string{"-fp8", "block", "-width", "48", "-data", text}, `-width: fp8: shape: "block0.attention.qkv.input" has a width of 48, and block wants whole blocks of 128: take 128`},
		{"shard level of one replica", []string{"-shard", "1", "-data", text}, "-shard is for several replicas"},
		{"unknown shard level", []string{"-replicas", "2", "-shard", "4", "-data", text}, "-shard is 4: give 0 to 3"},
		{"gathered without shards", []string{"-replicas", "2", "-gathered", "1", "-data", text}, "-gathered is for -shard 3"},
		{"idle replicas", []string{"-replicas", "6", "-data", text}, "-microbatches is 5: give at least one for each of the 6 replicas"},
		{"many replicas", []string{"-replicas", "33", "-ranks", "2", "-microbatches", "40", "-data", text}, "-replicas is 33, of 2 ranks each: give at most 64 ranks in all"},
		{"replicas without held-out text", []string{"-replicas", "20", "-microbatches", "20", "-data", text}, "the held-out text is 18 windows for 20 replicas: give more text, or a smaller -seq"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, folder, _, stderr := runTiny(t, c.flags...)
			requireOneLine(t, status, stderr, c.want)
			require.NoDirExists(t, folder)
		})
	}
	entries, err := os.ReadDir(full)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// TestNoStepKeepsTheOlderCheckpoint interrupts a run before its first step: an earlier run's
// checkpoint stays.
func TestNoStepKeepsTheOlderCheckpoint(t *testing.T) {
	checkpoint := filepath.Join(t.TempDir(), "good")
	text := sentence(t)
	status, _, _, stderr := runTiny(t, "-data", text, "-checkpoint", checkpoint)
	require.Zero(t, status, stderr)
	before := files(t, checkpoint)
	require.NotEmpty(t, before)

	opts, err := parse(append(append([]string{}, tiny...), "-run", filepath.Join(t.TempDir(), "run"), "-data", text, "-checkpoint", checkpoint, "-resume", checkpoint, "-steps", "4"))
	require.NoError(t, err)
	var out bytes.Buffer
	run := newTrainer(opts)
	run.people, run.out, run.json = &terminal.Output{Writer: &out}, &out, &out
	ctx, cancel := context.WithCancel(t.Context())
	require.ErrorIs(t, run.session.Run(ctx, changed{run, cancel}), job.ErrInterrupted)
	require.NoError(t, run.Close())
	require.Equal(t, before, files(t, checkpoint))
}

// Control sequences in names and flags are shown, not executed by the terminal.
func TestTerminalIsNotCommanded(t *testing.T) {
	const hostile = "a\x1b[31m\u009b1m\u202e\x07"
	dir := t.TempDir()
	data, missing := filepath.Join(dir, hostile), filepath.Join(dir, "none", hostile)
	text := []byte(read(t, sentence(t)))
	require.NoError(t, os.WriteFile(data, text, 0o600))
	for _, flags := range [][]string{
		{"-data", data}, {"-data", missing}, {"-data", data, "-resume", missing}, {"-data", data, "-checkpoint", missing}, {"-data", data, "-json", missing},
		{"-data", data, "-costs", missing}, {"-data", data, "-emit-costs", missing}, {"-data", data, "-emit-profile", missing},
		{"-data", data, "-emit-profile", filepath.Join(dir, "out"+hostile)}, {"-plan", hostile}, {"-steps", hostile}, {"-" + hostile}, {hostile},
	} {
		var stdout, stderr bytes.Buffer
		args := append(append([]string{"-run", filepath.Join(t.TempDir(), hostile)}, tiny...), flags...)
		run(t.Context(), args, &stdout, &stderr)
		require.NotEmpty(t, stdout.String()+stderr.String(), "%q", flags)
		for _, r := range stdout.String() + stderr.String() {
			require.False(t, r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r), "%q prints %q: %q%q", flags, r, stdout.String(), stderr.String())
		}
	}
}

// Devices are given by name. Other names, and flags that do not apply to the device, are refused.
func TestDevice(t *testing.T) {
	for text, want := range map[string]int{"cuda": 0, "cuda:0": 0, "cuda:3": 3} {
		o := defaults()
		o.device = text
		number, cuda, err := o.cudaNumber()
		require.NoError(t, err)
		require.True(t, cuda)
		require.Equal(t, want, number)
	}
	for _, text := range []string{"", "gpu", "cuda:", "cuda:-1", "cuda:x", "host:1"} {
		o := defaults()
		o.device = text
		require.ErrorContains(t, o.validate(), "want host, cuda, or cuda:2", text)
	}
	o := defaults()
	o.device, o.emitCosts = "cuda", "costs"
	require.ErrorContains(t, o.validate(), "leave out -emit-costs")
	for text, want := range map[string]string{"half": `-products is "half": give float32`, "bfloat16": "-products and -plain-launches are for -device cuda"} {
		o, err := parse([]string{"-products", text})
		require.NoError(t, err)
		require.ErrorContains(t, o.validate(), want)
	}
}

// The error for a model that a device rejects suggests a smaller one only if the model does not
// fit.
func TestTooLarge(t *testing.T) {
	heads := errors.New("heads of 256 elements: give more heads")
	require.Equal(t, heads, tooLarge(heads))
	require.ErrorContains(t, tooLarge(fmt.Errorf("model: %w", memory.ErrOutOfMemory)), "use a smaller -width or fewer -layers")
}
