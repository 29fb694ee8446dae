package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testkit"
)

// TestMemoryLogDocumented runs the commands of docs/memory-log.md over the logs in its
// folder, and compares the page with their output and with the lines of Python that it
// shows. -update rewrites it.
func TestMemoryLogDocumented(t *testing.T) {
	docs, err := filepath.Abs("../../docs")
	require.NoError(t, err)
	path := filepath.Join(docs, "memory-log.md")
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	python, err := os.ReadFile(filepath.Join(docs, "memory-log", "memory_log.py"))
	require.NoError(t, err)
	t.Chdir(filepath.Join(docs, "memory-log"))

	var fresh strings.Builder
	block, commands := "", 0
	for line := range strings.Lines(string(page)) {
		if language, fence := strings.CutPrefix(strings.TrimSpace(line), "```"); fence {
			if block == "python" {
				fresh.Write(python)
			}
			if block == "" {
				block = language
			} else {
				block = ""
			}
			fresh.WriteString(line)
			continue
		}
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case block == "console" && is:
			commands++
			fresh.WriteString(line + shell(t, strings.TrimSpace(command)))
		case block == "":
			fresh.WriteString(line)
		}
	}
	require.Equal(t, 5, commands)
	require.LessOrEqual(t, strings.Count(string(python), "\n"), 16, "fifteen lines and a blank one between")
	if *testkit.Update {
		require.NoError(t, os.WriteFile(path, []byte(fresh.String()), 0o644))
		return
	}
	require.Equal(t, fresh.String(), string(page), "go test ./cmd/weir -update writes the page anew")
}
