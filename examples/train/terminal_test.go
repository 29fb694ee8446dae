package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Control sequences in names and flags are shown, not executed by the terminal.
func TestTerminalIsNotCommanded(t *testing.T) {
	const hostile = "a\x1b[31m\u009b1m\u202e\x07"
	dir := t.TempDir()
	data, missing := filepath.Join(dir, hostile), filepath.Join(dir, "none", hostile)
	text, err := os.ReadFile(sentence(t))
	require.NoError(t, err)
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
