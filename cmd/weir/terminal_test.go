package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

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
