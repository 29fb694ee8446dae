package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/schedule"
)

// TestDocumented runs every command of docs/cli.md and docs/fit.md and compares its output
// with the page. In a block of the page a line that begins with $ is a command; commands may
// be piped into each other with | and written to a file with >. -update rewrites the page.
func TestDocumented(t *testing.T) {
	for name, least := range map[string]int{"cli.md": 10, "fit.md": 3, "trace.md": 2} {
		t.Run(name, func(t *testing.T) { documented(t, name, least) })
	}
}

// documented runs the commands of a page, which has at least this many.
func documented(t *testing.T, name string, least int) {
	path, err := filepath.Abs("../../docs/" + name)
	require.NoError(t, err)
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	for _, files := range []string{"memory-log", "placement", "fit", "snapshots", "trace"} { // read by commands of the page
		require.NoError(t, os.CopyFS(".", os.DirFS(filepath.Join(filepath.Dir(path), files))))
	}

	var fresh strings.Builder
	inside, commands := false, 0
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "```") {
			inside = !inside && strings.HasPrefix(line, "```console")
		}
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case inside && is:
			commands++
			fresh.WriteString(line)
			fresh.WriteString(shell(t, strings.TrimSpace(command)))
		case !inside || strings.HasPrefix(line, "```"):
			fresh.WriteString(line)
		}
	}
	require.GreaterOrEqual(t, commands, least, "the page's commands were found")
	if *testkit.Update {
		require.NoError(t, os.WriteFile(path, []byte(fresh.String()), 0o644))
		return
	}
	require.Equal(t, fresh.String(), string(page), "go test ./cmd/weir -update writes the page anew")
}

// README.md and docs/cli.md list every schedule.
func TestEveryScheduleIsListed(t *testing.T) {
	for _, name := range []string{"../../README.md", "../../docs/cli.md"} {
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, s := range schedule.Schedules() {
			require.Contains(t, string(page), "`"+s.Name+"`", name)
		}
	}
}

// shell runs weir commands that are joined by pipes, and returns the output as a terminal
// shows it.
func shell(t *testing.T, line string) string {
	t.Helper()
	line, file, redirected := strings.Cut(line, " > ")
	line, echo, echoes := strings.Cut(line, "; ")
	var in, shown string
	status := 0
	for _, command := range strings.Split(line, " | ") {
		var out, errs bytes.Buffer
		words := strings.Fields(command)
		switch words[0] {
		case "weir":
			status = run(words[1:], strings.NewReader(in), &out, &errs)
		case "cat":
			content, err := os.ReadFile(words[1])
			require.NoError(t, err)
			out.Write(content)
		case "sed": // sed s/A/B/
			parts := strings.Split(strings.Trim(words[1], "'"), "/")
			require.Contains(t, in, parts[1], "what sed should replace")
			out.WriteString(strings.Replace(in, parts[1], parts[2], 1))
		default:
			t.Fatalf("docs/cli.md: %q is not run here", words[0])
		}
		in = out.String()
		shown += errs.String()
	}
	if redirected {
		require.NoError(t, os.WriteFile(file, []byte(in), 0o644))
		return shown
	}
	if echoes {
		require.Equal(t, "echo $?", echo)
		return shown + in + string(rune('0'+status)) + "\n"
	}
	return shown + in
}
