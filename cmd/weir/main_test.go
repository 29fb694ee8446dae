package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// weir runs a command line and returns what it printed and its exit status.
func weir(stdin string, args ...string) (stdout, stderr string, status int) {
	var out, errs bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &errs)
	return out.String(), errs.String(), status
}

func TestPlan(t *testing.T) {
	for name, args := range map[string]string{
		"depth-first.txt":    "--stages 2 --microbatches 64",
		"groups.txt":         "--schedule depth-first --stages 2 --microbatches 10 --group 4",
		"breadth-first.txt":  "--schedule=breadth-first --stages=3 --microbatches=1000000",
		"forward-only.txt":   "--stages 2 --microbatches 64 --forward-only",
		"frozen.txt":         "--stages 4 --microbatches 64 --frozen 0,1,3",
		"frozen-forward.txt": "--stages 2 --microbatches 3 --frozen 0,1 --forward-only",
		"one-stage.txt":      "--stages 1 --microbatches 1",
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := weir("", append([]string{"plan"}, strings.Fields(args)...)...)
			require.Empty(t, stderr)
			require.Zero(t, status)
			path := filepath.Join("testdata", name)
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(path, []byte(stdout), 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, string(want), stdout)

			// What plan prints check accepts, from a file and from standard input.
			fromFile, stderr, status := weir("", "check", path)
			require.Empty(t, stderr)
			require.Zero(t, status)
			fromInput, _, status := weir(stdout, "check", "-")
			require.Zero(t, status)
			require.Equal(t, fromFile, fromInput)
			require.True(t, strings.HasPrefix(fromFile, "ok: "))
		})
	}
}

func TestCheck(t *testing.T) {
	for name, want := range map[string]string{
		"groups.txt":        `ok: "depth-first group=4", training: 1 rank, 2 stages, 10 microbatches, 40 actions in 2 segments; in flight per stage 4 4; entries per rank 4`,
		"breadth-first.txt": `ok: "breadth-first", training: 1 rank, 3 stages, 1000000 microbatches, 6000000 actions in 6 segments; in flight per stage 1000000 1000000 1000000; entries per rank 1000000`,
		"one-stage.txt":     `ok: "depth-first", training: 1 rank, 1 stage, 1 microbatch, 2 actions in 1 segment; in flight per stage 1; entries per rank 1`,
	} {
		stdout, _, status := weir("", "check", filepath.Join("testdata", name))
		require.Zero(t, status)
		require.Equal(t, want+"\n", stdout)
	}
	many, _, status := weir("", "plan", "--stages", "40", "--microbatches", "8")
	require.Zero(t, status)
	stdout, _, status := weir(many, "check", "-")
	require.Zero(t, status)
	require.Contains(t, stdout, "in flight per stage 1 to 1;")

	bare := "weir plan 1 name \"bare\" mode forward-only ranks 1 stages 1 microbatches 2 placement 0 frozen none rank 0: x 2 +1: 0F0"
	stdout, _, status = weir(bare, "check", "-")
	require.Zero(t, status)
	require.Contains(t, stdout, "2 actions in 1 segment; no lifetimes\n")
}

func TestCheckFaults(t *testing.T) {
	good, _, _ := weir("", "plan", "--stages", "2", "--microbatches", "8")
	broken := strings.NewReplacer("1F0~io 1B0", "1B0~ps 1F0~io 0F0", "entries=1", "entries=0").Replace(good)
	require.NotEqual(t, good, broken)
	stdout, stderr, status := weir(broken, "check", "-")
	require.Equal(t, 1, status)
	require.Empty(t, stdout)
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	require.Greater(t, len(lines), 1)
	require.Contains(t, lines, "weir: order: Rank 0, action 1: 1B0 runs before 1F0, which saves what it takes; move 1F0 before it.")
	require.Contains(t, lines, "weir: action twice: Rank 0, action 3: 0F0 is there already; take one of the two out.")

	_, stderr, status = weir(good+strings.Repeat("x 1 +0: 0F0 1F0 1B0 0B0\n", 9), "check", "-")
	require.Equal(t, 1, status)
	require.Regexp(t, `weir: and \d+ more faults\n$`, stderr)
}

// Each error is one line that says what to do, and the exit status is 1.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "plan.txt")
	require.NoError(t, os.WriteFile(text, []byte("weir plan 1\nname depth-first\n"), 0o644))
	for _, test := range []struct{ args, want string }{
		{"", `weir: expected one of "plan", "check" (weir --help says more)`},
		{"draw", `weir: unexpected argument draw (weir --help says more)`},
		{"plan --stages 2", `weir: missing flags: --microbatches=M (weir --help says more)`},
		{"plan --stages two --microbatches 2", `weir: --stages: expected a valid 64 bit int but got "two" (weir --help says more)`},
		{"plan --schedule 1f1b --stages 2 --microbatches 2", `weir: --schedule must be one of "depth-first","breadth-first" but got "1f1b" (weir --help says more)`},
		{"plan --stages 0 --microbatches 2", `weir: --stages 0: there must be 1 to 16384`},
		{"plan --stages 99999 --microbatches 2", `weir: --stages 99999: there must be 1 to 16384`},
		{"plan --stages 2 --microbatches 0", `weir: invalid parameters: 0 microbatches: there must be 1 to 268435456`},
		{"plan --stages 2 --microbatches 2 --group=-1", `weir: invalid parameters: group -1: it must be 1 or more, or 0 for 1`},
		{"plan --stages 2 --microbatches 2 --group 2 --schedule breadth-first", `weir: invalid parameters: breadth-first has no groups: leave Group at 0, or use depth-first with group 2`},
		{"plan --stages 2 --microbatches 2 --frozen 2", `weir: --frozen 2: stages are 0 to 1`},
		{"plan --stages 2 --microbatches 2 --frozen 0,1", `weir: invalid parameters: every stage is frozen, so nothing trains: leave one free, or make a forward-only plan`},
		{"check", `weir: expected "<file>" (weir --help says more)`},
		{"check " + dir + "/none", `weir: open ` + dir + `/none: no such file or directory`},
		{"check " + text, `weir: invalid plan text: ` + text + `:2:6: found "depth-first", expected a name in double quotes`},
		{"check -", `weir: invalid plan text: line 1:1: found the end of the text, expected weir`},
	} {
		stdout, stderr, status := weir("", strings.Fields(test.args)...)
		require.Equal(t, test.want+"\n", stderr)
		require.Empty(t, stdout)
		require.Equal(t, 1, status)
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "plan --help", "check --help"} {
		stdout, stderr, status := weir("", strings.Fields(args)...)
		require.Contains(t, stdout, "Usage: weir")
		require.Empty(t, stderr)
		require.Zero(t, status)
	}
}

// A full disk is an error.
func TestFullDisk(t *testing.T) {
	for _, args := range [][]string{{"plan", "--stages", "2", "--microbatches", "2"}, {"check", "testdata/one-stage.txt"}} {
		var stderr bytes.Buffer
		require.Equal(t, 1, run(args, strings.NewReader(""), fullDisk{}, &stderr))
		require.Equal(t, "weir: no space left\n", stderr.String())
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

var _ io.Writer = fullDisk{}
