package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/terminal"
)

// fileLimit is an environment variable that makes every write of a program beyond a number of
// bytes of a file fail, as a full disk would. The limit applies to a whole process, so it
// cannot be set for the tests, which write files too.
const fileLimit = "WEIR_TRAIN_FILE_LIMIT"

func init() {
	bytes, err := strconv.ParseUint(os.Getenv(fileLimit), 10, 64)
	if err == nil {
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: bytes, Max: bytes})
		if err != nil {
			panic(err)
		}
	}
}

// runFull runs the program with a limit on the size of files.
func runFull(t *testing.T, limit int, flags ...string) (status int, stderr string) {
	t.Helper()
	var errs bytes.Buffer
	cmd, _ := program(t, flags...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", fileLimit, limit))
	cmd.Stderr = &errs
	require.Error(t, cmd.Run())
	return cmd.ProcessState.ExitCode(), errs.String()
}

// A full disk ends the run with one line. What the logs had before is left in partial files that
// end with a whole line, and nothing else is left half-written.
func TestFullDisk(t *testing.T) {
	text := sentence(t)
	for _, c := range []struct {
		name  string
		limit int // the log of three steps has 11 KiB
		flags []string
		want  string
		left  []string // in the run folder
	}{
		{"memory log", 8 << 10, nil, "writing run/memory.jsonl: file too large: make room or name another place; what was written before is in run/memory.jsonl.partial",
			[]string{"losses.csv", "memory.jsonl.partial"}},
		{"losses", 100, nil, "writing run/losses.csv: file too large: make room or name another place; what was written before is in run/losses.csv.partial",
			[]string{"losses.csv.partial"}},
		{"all at once", 0, nil, "file too large: make room or name another place", nil},
		{"page", 14 << 10, nil, "report.html: file too large: make room or name another place", []string{"losses.csv", "memory.jsonl"}},
		{"checkpoint", 100 << 10, []string{"-checkpoint", "checkpoint", "-width", "32"}, "writing checkpoint: file too large: make room or name another place", []string{"losses.csv", "memory.jsonl", "report.html"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			status, stderr := runFull(t, c.limit, append(c.flags, "-data", text, "-run", "run")...)
			requireOneLine(t, status, stderr, c.want)
			require.Equal(t, c.left, names(t, "run"))
			require.NoDirExists(t, "checkpoint")
			require.LessOrEqual(t, len(names(t, ".")), 1, "no temporary file is left")
			for _, name := range c.left {
				content := []byte(read(t, filepath.Join("run", name)))
				require.True(t, bytes.HasSuffix(content, []byte("\n")), "%s ends with a whole line", name)
			}
		})
	}
}

// A log that a full disk has cut can be read, and no later run overwrites it.
func TestFullDiskKeepsTheLog(t *testing.T) {
	text, folder := sentence(t), filepath.Join(t.TempDir(), "run")
	kept := filepath.Join(folder, "memory.jsonl.partial")
	_, stderr := runFull(t, 8<<10, "-data", text, "-run", folder)
	require.Contains(t, stderr, kept)
	samples, err := logged(t, kept)
	require.NoError(t, err)
	require.Greater(t, samples, 5, "more than a step")
	before := []byte(read(t, kept))
	status, _, _, stderr := runTiny(t, "-data", text, "-run", folder)
	requireOneLine(t, status, stderr, kept+" exists: name another folder with -run")
	after := []byte(read(t, kept))
	require.Equal(t, before, after)
}

// logged returns the number of microbatches in a memory log, and its first error.
func logged(t *testing.T, path string) (samples int, err error) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	for record, err := range memlog.Read(file) {
		if err != nil {
			return samples, err
		}
		if record.Sampled() {
			samples++
		}
	}
	return samples, nil
}

// The log of a run can be read while it runs, and therefore also after it was killed.
func TestKilled(t *testing.T) {
	cmd, folder := program(t, "-data", sentence(t), "-steps", "1000000", "-evaluate", "0")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	losses := filepath.Join(folder, "losses.csv.partial")
	for lines := bufio.NewScanner(stdout); lines.Scan() && !strings.HasPrefix(lines.Text(), "folder"); {
	}
	for {
		content, err := os.ReadFile(losses)
		if err == nil && bytes.Count(content, []byte("\n")) > 1+1+15 { // the head, the weights before step 1, the steps
			break
		}
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	require.Equal(t, []string{"losses.csv.partial", "memory.jsonl.partial"}, names(t, folder))
	samples, err := logged(t, filepath.Join(folder, "memory.jsonl.partial"))
	if err != nil {
		require.ErrorIs(t, err, memlog.ErrTorn)
	}
	require.GreaterOrEqual(t, samples, 15*5)
	content := []byte(read(t, losses))
	require.True(t, bytes.HasSuffix(content, []byte("\n")))
}

// A run that does not survive its first step has the plan of its memory in the log.
func TestKilledInTheFirstStep(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	opts, err := parse(slices.Concat(tiny, []string{"-run", folder, "-data", sentence(t)}))
	require.NoError(t, err)
	var out bytes.Buffer
	run := newTrainer(opts)
	run.people, run.out, run.json = &terminal.Output{Writer: &out}, &out, &out
	defer func() { require.NoError(t, run.Close()) }()
	var log, losses []byte
	require.Error(t, run.session.Run(t.Context(), changed{run, func() {
		run.train = runner.Indexed(func(context.Context, batchctx.Entry[kernels.Buffer]) error {
			log, err = os.ReadFile(filepath.Join(folder, "memory.jsonl.partial"))
			require.NoError(t, err)
			losses, err = os.ReadFile(filepath.Join(folder, "losses.csv.partial"))
			require.NoError(t, err)
			return errors.New("killed")
		})
	}}))
	require.Contains(t, string(log), `"peak_owner"`)
	require.Equal(t, 2, bytes.Count(losses, []byte("\n")), "the head and the weights before step 1")
}
