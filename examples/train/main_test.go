package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/memlog"
)

var long = flag.Bool("long", false, "run the default training and a longer control on random digits")

// read returns the content of a file.
func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// skipShort skips a test that takes a second or more under -short.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a second or more: run it without -short")
	}
}

// asProgram is an environment variable that makes the test binary run the program.
const asProgram = "WEIR_TRAIN"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(asProgram) != "" {
		os.Exit(run(untilSignal(), flag.Args(), os.Stdout, os.Stderr))
	}
	var err error
	if temporary, err = os.MkdirTemp("", "weir"); err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(temporary) // it is one of the system's temporary files
	os.Exit(status)
}

// temporary is the TMPDIR of processes: killed ones leave their sockets in it.
var temporary string

// program returns a command that runs the program with the tiny flags, flags and a run folder,
// in a separate process.
func program(t *testing.T, flags ...string) (cmd *exec.Cmd, folder string) {
	t.Helper()
	path, err := os.Executable()
	require.NoError(t, err)
	folder = filepath.Join(t.TempDir(), "run")
	cmd = exec.CommandContext(t.Context(), path, slices.Concat([]string{"--"}, tiny, []string{"-run", folder}, flags)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+temporary)
	cmd.Stderr = t.Output()
	return cmd, folder
}

// tiny are the flags of a run that takes milliseconds.
var tiny = []string{
	"-steps", "3", "-microbatches", "5", "-seq", "16", "-width", "8", "-layers", "2", "-heads", "2", "-warmup", "1",
	"-dropout", "0.1", "-evaluate", "2", "-tied",
}

// sentence writes a text for tiny runs.
func sentence(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	text := strings.Repeat("Rays which differ in colour differ also in degrees of refrangibility.\n\n", 40)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	return path
}

// runTiny runs the program with the tiny flags, flags, and a run folder.
func runTiny(t *testing.T, flags ...string) (status int, folder, stdout, stderr string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "run")
	var out, errs bytes.Buffer
	args := append(append(append([]string{}, tiny...), "-run", folder), flags...)
	status = run(t.Context(), args, &out, &errs)
	return status, folder, out.String(), errs.String()
}

// summaryOf runs the program and returns its summary.
func summaryOf(t *testing.T, flags ...string) summary {
	t.Helper()
	status, _, stdout, stderr := runTiny(t, append(flags, "-json", "-")...)
	require.Zero(t, status, stderr)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(stdout), &s))
	return s
}

// records returns the records of the memory log in a run folder.
func records(t *testing.T, folder string) (all []memlog.Record) {
	t.Helper()
	log, err := os.Open(filepath.Join(folder, "memory.jsonl"))
	require.NoError(t, err)
	defer log.Close()
	for record, err := range memlog.Read(log) {
		require.NoError(t, err)
		all = append(all, record)
	}
	return all
}

// samples returns the records of microbatches in the memory log of a run.
func samples(t *testing.T, folder string) []memlog.Record {
	t.Helper()
	return slices.DeleteFunc(records(t, folder), func(r memlog.Record) bool { return !r.Sampled() })
}

// files returns the contents of a folder, by path.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = string(content)
		return err
	}))
	return all
}

func TestRunWritesAll(t *testing.T) {
	summary := filepath.Join(t.TempDir(), "summary.json")
	status, folder, stdout, stderr := runTiny(t, "-data", sentence(t), "-json", summary)
	require.Zero(t, status, stderr)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "step 3/3")
	require.Contains(t, stdout, "0 bytes over 15 microbatches")

	var values map[string]any
	content := []byte(read(t, summary))
	require.NoError(t, json.Unmarshal(content, &values))
	for _, key := range []string{
		"microbatches", "steps", "loss_train", "loss_heldout", "tokens_per_second", "peak_bytes",
		"growth_per_microbatch_bytes", "live_bytes_after_step", "allocations_per_step", "weights_sha256",
	} {
		require.Contains(t, values, key)
		require.NotNil(t, values[key], key)
	}
	require.EqualValues(t, 5, values["microbatches"])
	require.EqualValues(t, 3, values["steps"])
	require.EqualValues(t, 0, values["growth_per_microbatch_bytes"])
	require.EqualValues(t, 2, values["books_audited"])
	require.Equal(t, values["model_bytes"], values["live_bytes_after_step"])
	require.Greater(t, values["peak_bytes"], values["model_bytes"])

	all := samples(t, folder)
	require.Len(t, all, 15)
	for i, record := range all {
		require.EqualValues(t, i/5, record.Step)
		require.Equal(t, i%5, record.Microbatch)
		require.Zero(t, record.Growth)
	}

	losses := read(t, filepath.Join(folder, "losses.csv"))
	lines := strings.Split(strings.TrimSpace(losses), "\n")
	require.Len(t, lines, 1+1+3) // the head, the weights before step 1, the steps
	for i, evaluated := range []bool{true, false, true, true} {
		require.Equal(t, 7, strings.Count(lines[i+1], ","), lines[i+1])
		require.Equal(t, !evaluated, strings.HasSuffix(lines[i+1], ",,"), lines[i+1])
	}

	page := read(t, filepath.Join(folder, "report.html"))
	require.Equal(t, 3, strings.Count(page, `<svg class="wide"`))
	require.NotContains(t, page, "http")

	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 3)
}

// A second run without -run has its own folder.
func TestDefaultFolderIsNew(t *testing.T) {
	text := sentence(t)
	t.Chdir(t.TempDir())
	for range 2 {
		var out, errs bytes.Buffer
		require.Zero(t, run(t.Context(), append([]string{"-data", text}, tiny...), &out, &errs), errs.String())
	}
	entries, err := os.ReadDir("runs")
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	require.Zero(t, run(context.Background(), []string{"-help"}, &out, &errs))
	require.Empty(t, errs.String())
	for name := range strings.FieldsSeq("steps microbatches seq ranks stages width layers heads plan group cap slices descending capacity seed dropout recompute checkpoint resume run json data costs emit-costs budget unplanned offload offload-to emit-profile") {
		require.Contains(t, out.String(), "  -"+name)
	}
}

// The plan, the split and recompute change no bit of the weights (L9).
func TestPlanChangesNothing(t *testing.T) {
	text := sentence(t)
	want := summaryOf(t, "-data", text)
	for _, flags := range [][]string{
		{"-plan", "breadth-first"}, {"-group", "2"}, {"-stages", "1"}, {"-recompute"},
	} {
		got := summaryOf(t, append(flags, "-data", text)...)
		require.Equal(t, want.WeightsSHA256, got.WeightsSHA256, "%v", flags)
		require.Equal(t, *want.LossHeldout, *got.LossHeldout, "%v", flags)
	}
	other := summaryOf(t, "-data", text, "-seed", "2")
	require.NotEqual(t, want.WeightsSHA256, other.WeightsSHA256)
}

// Memory and allocations do not depend on the number of microbatches.
func TestFlat(t *testing.T) {
	text := sentence(t)
	few := summaryOf(t, "-data", text, "-microbatches", "64", "-dropout", "0")
	many := summaryOf(t, "-data", text, "-microbatches", "512", "-dropout", "0")
	require.Zero(t, many.Growth)
	require.Equal(t, few.LiveBytes, many.LiveBytes)
	require.Equal(t, few.PeakBytes, many.PeakBytes)
	if !built("-race", "true") && !built("-tags", "invariants") { // both allocate for their checks
		require.InDelta(t, few.Allocations, many.Allocations, 8) // the runtime's own vary
	}
}

// built reports whether this program was built with a flag.
func built(flag, value string) bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: flag, Value: value})
}
