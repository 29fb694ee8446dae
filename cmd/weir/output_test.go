package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// An output replaces a file only once it is complete: if the command fails, the old file remains.
func TestOutputsAreWhole(t *testing.T) {
	folder := t.TempDir()
	file, link := filepath.Join(folder, "file"), filepath.Join(folder, "link.svg")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	require.NoError(t, os.Symlink(file, link))

	_, stderr, status := weir("no log\n", "mem", "-", "--csv", file)
	require.Equal(t, misused, status)
	require.NotEmpty(t, stderr)
	_, stderr, status = weir("", "mem", filepath.Join(folder, "nothing"), "--csv", file)
	require.Equal(t, misused, status)
	require.Equal(t, "weir: open "+filepath.Join(folder, "nothing")+": no such file or directory\n", stderr, "it names what is missing")
	_, stderr, status = weir("", "draw", "1f1b", "--to", "svg", "-o", folder)
	require.Equal(t, misused, status)
	require.Equal(t, "weir: open "+folder+": is a directory\n", stderr)
	_, stderr, status = weir("", "draw", "1f1b", "-o", filepath.Join(folder, "none", "file.svg"))
	require.Equal(t, misused, status)
	require.Equal(t, "weir: open "+filepath.Join(folder, "none", "file.svg")+": no such file or directory\n", stderr)
	_, stderr, status = weir("", "plan", "1f1b", "-o", "")
	require.Equal(t, misused, status)
	require.Equal(t, "weir: the name of the output is empty: name a file, or - for standard output\n", stderr)
	require.Equal(t, "old", testkit.Read(t, file))

	_, stderr, _ = weir("", "draw", "1f1b", "-o", link)
	require.Empty(t, stderr)
	require.Contains(t, testkit.Read(t, file), "<svg", "a link is followed")
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing else is left")
}

// The error for a file that cannot be opened does not say that it is missing.
func TestUnreadableIsNotMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Symlink("loop", "loop"))
	fails(t, misused, "open loop: ", "", "check", "loop")
}

// The report of a log cannot overwrite the log.
func TestOutputsAreApart(t *testing.T) {
	folder := t.TempDir()
	log, other := filepath.Join(folder, "log.jsonl"), filepath.Join(folder, "other")
	text := memoryLog(0)
	require.NoError(t, os.WriteFile(log, []byte(text), 0o600))
	for _, flag := range []string{"--html", "--csv", "--trace"} {
		_, stderr, status := weir("", "mem", log, flag, log)
		require.Equal(t, misused, status)
		require.Equal(t, "weir: "+flag+" "+log+" is also the input: name another file\n", stderr)
	}
	_, stderr, status := weir("", "mem", log, "--trace", other, "--csv", other)
	require.Equal(t, misused, status)
	require.Equal(t, "weir: --csv and --trace name the same file, "+other+": name two files\n", stderr)
	require.Equal(t, text, testkit.Read(t, log))
	require.NoFileExists(t, other)
}

// weir plan writes a file that it can read, or no file if the form cannot express the plan.
func TestPlanOutput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	fails(t, misused, "may have 2097152", "", "plan", "1f1b", "--microbatches", "3000000", "--to", "compute", "-o", file+".csv")
	require.NoFileExists(t, file+".csv")
	stdout := succeeds(t, "", "plan", "1f1b", "--json", "-o", file)
	require.Empty(t, stdout)
	want, _, _ := weir("", "plan", "1f1b", "--json")
	require.Equal(t, want, testkit.Read(t, file))
}
