package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// TestHostileInput expects errors that name the flag or the file, and say how to correct it.
func TestHostileInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	profile := "../../docs/placement/profile.json"
	for _, test := range []struct {
		args   string
		file   string
		status int
		stderr string
	}{
		{"choose --ranks 2 --microbatches 4 --costs", "", misused, ":1:1: found the end of the text, expected more of the costs\n"},
		{"choose --ranks 2 --microbatches 4 --costs", `{"schema": 1}`, misused, ": there are costs of 0 stages: give one entry for all, or one for each\n"},
		{"choose --ranks 2 --microbatches 4 --costs", strings.Repeat(" ", 16<<20+1), misused, ": the text is longer than 16777216 bytes: name a file with the costs\n"},
		{"choose --ranks 2 --microbatches 4 --costs", `{"schema": 1, "stages": [{"f": NaN}]}`, misused, ":1:32: found \"NaN\", expected a value\n"},
		{"mem plan 1f1b --ranks 2 --profile", "\x1f\x8b\b", misused, `:1:1: found "\x1f\x8b\b", expected a value` + "\n"},
		{"mem plan 1f1b --ranks 2 --shapes 7 --profile " + profile, "-", misused, "weir: --shapes 7: the profile has shape classes 0 to 0\n"},
	} {
		args, want := strings.Fields(test.args), test.stderr
		if test.file != "-" {
			require.NoError(t, os.WriteFile(path, []byte(test.file), 0o600))
			args = append(args, path)
			want = path + want
		}
		_, stderr, status := weir("", args...)
		require.Equal(t, test.status, status, stderr)
		require.Equal(t, want, stderr)
	}
	_, stderr, status := weir("", "choose", "--ranks", "2", "--microbatches", "4", "--f", strings.Repeat("9", 100_000))
	require.Equal(t, misused, status)
	require.Less(t, len(stderr), 5000)
	require.True(t, strings.HasPrefix(stderr, `weir: --f: "999`), stderr)
	require.True(t, strings.HasSuffix(stderr, "is not a time: give a number from 0 to 1000000000 with up to nine decimal places (see weir choose --help)\n"), stderr)
}

// endless is a text that repeats itself endlessly.
type endless string

func (e endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// Reading an endless log without records stops, whether the log has one line or many.
func TestEndlessLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, []byte(memoryLog(0)), 0o600))
	for _, text := range []string{"no line of a log ", "no record\n"} {
		for _, args := range []string{"mem log -", "mem diff " + path + " -"} {
			var stdout, stderr bytes.Buffer
			require.NotEqual(t, good, run(strings.Fields(args), endless(text), &stdout, &stderr))
			require.Contains(t, stderr.String(), "no record")
		}
	}
}

// Wherever names, flags and contents of files are printed, their control characters are quoted and not sent
// to the terminal.
func TestTerminalIsNotCommanded(t *testing.T) {
	const hostile = "a\x1b[31m\u009b1m\r\u202e\x07"
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := put(hostile+".csv", "0F0,0B0\n")
	bad := put(hostile+".bad", "0F0,"+hostile+"\n")
	unproven := put(hostile+".unproven", "0B0,0F0\n")
	named := put("named.txt", "weir plan 1\nname \"a\\x1b[31m\\n\"\nmode training\nranks 1\nstages 1\nmicrobatches 1\nplacement 0\nfrozen none\n\nrank 0:\nx 1 +0: 0F0 0B0\n")
	log := put(hostile+".jsonl", memoryLog(0))
	torn := put(hostile+".torn", memoryLog(0)+`{"step`)
	missing := filepath.Join(dir, "none", hostile)
	example, err := os.ReadFile("../../docs/placement/profile.json")
	require.NoError(t, err)
	profile := put("profile.json", strings.ReplaceAll(string(example), `"attention"`, `"attention\u001b[31m"`))
	for _, args := range [][]string{
		{hostile}, {"--" + hostile}, {"plan", hostile}, {"plan", "1f1b", "--placement", hostile}, {"plan", "1f1b", "--to", hostile},
		{"plan", "1f1b", "--ranks", hostile}, {"plan", good}, {"sim", "1f1b", "--f", hostile}, {"choose", "--memory", hostile},
		{"check", missing}, {"check", bad}, {"check", good}, {"check", unproven}, {"check", named}, {"check", hostile}, {"check", "1f1b", hostile},
		{"sim", good}, {"sim", named}, {"sim", "1f1b", "--costs", missing}, {"sim", "1f1b", "--costs", bad},
		{"choose", "--ranks", "2", "--microbatches", "4", "-o", missing},
		{"draw", "1f1b", "-o", missing}, {"draw", bad}, {"convert", bad}, {"convert", missing},
		{"place", missing}, {"place", bad}, {"mem", missing}, {"mem", bad}, {"mem", log}, {"mem", torn}, {"mem", log, "--csv", log},
		{"mem", "diff", log, torn}, {"mem", "diff", log, bad}, {"mem", "leaks", missing}, {"mem", "leaks", bad},
		{"mem", "plan", "1f1b", "--ranks", "2", "--profile", profile}, {"mem", "plan", "1f1b", "--profile", missing}, {"mem", "plan", "1f1b", "--profile", bad}, {"mem", "plan", good, "--costs", bad},
		{"mem", "export", "1f1b", "--profile", bad, "--to", "csv"}, {"mem", "export", "1f1b", "-o", hostile},
	} {
		stdout, stderr, _ := weir("", args...)
		require.NotEmpty(t, stdout+stderr, "%q", args)
		for _, r := range stdout + stderr {
			require.False(t, r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r), "%q prints %q: %q%q", args, r, stdout, stderr)
		}
	}
}
