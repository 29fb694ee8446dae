package launch_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/trainer/launch"
)

func TestMain(m *testing.M) { testkit.RunWaiting(m) }

// writer is a function that is used as an io.Writer.
type writer func(line []byte) (int, error)

func (w writer) Write(line []byte) (int, error) { return w(line) }

// shell returns a job that runs a shell script. Its grace is longer than processes on a busy machine take to
// end on their own.
func shell(processes int, script string) (*launch.Job, *bytes.Buffer) {
	var out bytes.Buffer
	return &launch.Job{Processes: processes, Command: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out, Grace: time.Minute}, &out
}

func TestJob(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		status int
		says   string // the error
		prints []string
	}{
		"all is well":  {"echo $WEIR_RANK of $WEIR_SIZE", 0, "", []string{"[0] 0 of 3\n", "[1] 1 of 3\n", "[2] 2 of 3\n"}},
		"an open line": {"printf open", 0, "", []string{"[2] open\n"}},
		"one fails, the others notice": {"meet a; [ $WEIR_RANK = 1 ] && exit 7; exit 3", 7,
			"process 1 has failed: exit status 7; ended because of it: ", nil},
		"all fail": {"meet a; exit 2", 2, "has failed: exit status 2; other failed processes: ", nil},
		"one fails, the others do not": {"if [ $WEIR_RANK = 2 ]; then exit 1; fi; exec sleep 1000", 1,
			"process 2 has failed: exit status 1; ended because of it: ", nil},
		"they do not even obey":         {"if [ $WEIR_RANK = 0 ]; then exit 1; fi; trap '' TERM; sleep 1000; sleep 1000", 1, "process 0 has failed", nil},
		"one fails, its child lives on": {"if [ $WEIR_RANK = 1 ]; then sleep 60 & exit 7; fi; exec sleep 1000", 7, "process 1 has failed: exit status 7", nil},
		"one is killed":                 {"meet a; [ $WEIR_RANK = 0 ] && kill -9 $$; exit 3", 128 + 9, "process 0 has failed: signal: killed", nil},
		"one fails, its child holds its output": {`[ $WEIR_RANK = 1 ] && { echo $$ >"$0.1"; meet a; sleep 5 & exit 7; }; meet a; gone 1; exit 1`, 7,
			"process 1 has failed: exit status 7; other failed processes: ", nil},
		"one is killed, the others were first": {`echo $$ >"$0.$WEIR_RANK"; meet a; [ $WEIR_RANK = 1 ] || exit 1; gone 0; gone 2; kill -9 $$`, 128 + 9,
			"process 1 has failed: signal: killed; other failed processes: ", nil},
		"one hangs, the others say so":  {"meet a; [ $WEIR_RANK = 2 ] && kill -STOP $$; exit 3", 128 + 9, "process 2 has failed: signal: killed; ended because of it: ", nil},
		"one hangs and is asked to end": {"trap 'exit 130' TERM; meet a; [ $WEIR_RANK = 2 ] && while :; do sleep 0.1; done; exit 3", 3, "has failed: exit status 3", nil},
		"a token for all":               {"[ -n \"$WEIR_TOKEN\" ] && [ -d \"$(dirname ${WEIR_ADDRESS#unix:})\" ]", 0, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// meet waits until all processes have started, so that none is asked to end before that. gone waits until a
			// process has ended and the job has surely noticed it.
			job, out := shell(3, `gone() { while kill -0 $(cat "$0.$1") 2>/dev/null; do sleep 0.02; done; sleep 0.5; }; meet() { touch "$0/$1.$WEIR_RANK"; while [ $(ls "$0" | wc -l) -lt 3 ]; do sleep 0.02; done; }; `+test.script)
			job.Command = append(job.Command, t.TempDir())
			if strings.Contains(test.script, "sleep 1000") || strings.HasPrefix(name, "one hangs") {
				job.Grace = 3 * time.Second // expires, because some processes do not end on their own
			}
			status, err := job.Run(t.Context())
			require.Equal(t, test.status, status, "%v: %s", err, out)
			if test.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.says)
			}
			for _, line := range test.prints {
				require.Contains(t, out.String(), line)
			}
		})
	}
	job, _ := shell(2, "")
	job.Command = []string{filepath.Join(t.TempDir(), "missing")}
	_, err := job.Run(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A line that is too long is broken, and the last line needs no line end.
func TestLongLines(t *testing.T) {
	job, out := shell(1, "head -c 70000 /dev/zero | tr '\\0' x")
	_, err := job.Run(t.Context())
	require.NoError(t, err)
	require.Equal(t, "[0] "+strings.Repeat("x", 64<<10)+"\n[0] "+strings.Repeat("x", 70000-(64<<10))+"\n", out.String())
}

type distant struct{}

func (distant) Error() string   { return "a rank is gone" }
func (distant) Elsewhere() bool { return true }

func TestExitStatus(t *testing.T) {
	for status, errs := range map[int][]error{
		0:                  {nil},
		1:                  {errors.New("a"), os.ErrDeadlineExceeded},
		launch.Elsewhere:   {distant{}, fmt.Errorf("a step: %w", distant{}), errors.Join(errors.New("a"), distant{})},
		launch.Interrupted: {context.Canceled, fmt.Errorf("%w: %w", distant{}, context.Canceled)},
	} {
		for _, err := range errs {
			require.Equal(t, status, launch.ExitStatus(err), "%v", err)
		}
	}
}

// A failed job is restarted up to Restarts times, and an interrupted one is not.
func TestJobRestarts(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	job, out := shell(2, "[ $WEIR_RANK = 1 ] && exit 3; echo x >>"+seen+"; [ $(wc -l <"+seen+") = 3 ] || exit 5")
	job.Command[2] = strings.Replace(job.Command[2], "&& exit 3", "&& exit 0", 1)
	job.Restarts = 3
	status, err := job.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, status)
	require.Equal(t, 2, strings.Count(out.String(), "starting again"), out)
	require.Equal(t, 2, strings.Count(out.String(), "launch:"), out)

	job, out = shell(1, "exit 130")
	job.Restarts = 3
	status, _ = job.Run(t.Context())
	require.Equal(t, launch.Interrupted, status)
	require.Empty(t, out.String())
}

// A signal reaches all processes, and the end of the context ends them.
func TestJobSignals(t *testing.T) {
	signals := make(chan os.Signal, 1)
	job, out := shell(2, "trap 'echo told; exit 130' INT; echo ready; while :; do sleep 0.05; done")
	job.Signals, job.Stdout = signals, writer(func(line []byte) (int, error) {
		if n, err := out.Write(line); strings.Count(out.String(), "ready") < 2 || bytes.Contains(line, []byte("told")) {
			return n, err
		}
		signals <- os.Interrupt
		return len(line), nil
	})
	job.Stderr = job.Stdout
	status, _ := job.Run(t.Context())
	require.Equal(t, launch.Interrupted, status)
	require.Equal(t, 2, strings.Count(out.String(), "told"), out)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	job, _ = shell(2, "exec sleep 1000")
	job.Restarts = 5
	status, err := job.Run(ctx)
	require.Equal(t, 128+15, status)
	require.Error(t, err)
}

// TestFind has the variables that launchers set. Some launchers are nested.
func TestFind(t *testing.T) {
	slurm := map[string]string{"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
	for name, test := range map[string]struct {
		env  map[string]string
		want launch.Rendezvous
	}{
		"none":       {nil, launch.Rendezvous{}},
		"Slurm":      {slurm, launch.Rendezvous{Launcher: "Slurm", Rank: 3, Size: 8}},
		"Open MPI":   {with(slurm, "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "PMIX_RANK", "1"), launch.Rendezvous{Launcher: "Open MPI", Rank: 1, Size: 2}},
		"PMI":        {with(slurm, "PMI_RANK", "0", "PMI_SIZE", "2", "WEIR_TOKEN", "s"), launch.Rendezvous{Launcher: "PMI", Size: 2, Token: "s"}},
		"torchrun":   {with(slurm, "RANK", "1", "WORLD_SIZE", "4", "MASTER_ADDR", "::1", "MASTER_PORT", "29500"), launch.Rendezvous{Launcher: "torchrun", Rank: 1, Size: 4, Address: "tcp:[::1]:29500"}},
		"Kubernetes": {with(nil, "JOB_COMPLETION_INDEX", "5"), launch.Rendezvous{Launcher: "Kubernetes", Rank: 5}},
		"weir":       {with(slurm, "RANK", "x", "WEIR_RANK", "1", "WEIR_SIZE", "2", "WEIR_ADDRESS", "unix:/j", "WEIR_TOKEN", "t"), launch.Rendezvous{Launcher: "weir launch", Rank: 1, Size: 2, Address: "unix:/j", Token: "t"}},
	} {
		got, err := launch.Find(func(name string) string { return test.env[name] })
		require.NoError(t, err, name)
		require.Equal(t, test.want, got, name)
	}
	for fault, env := range map[string]map[string]string{
		"SLURM_PROCID=8 and SLURM_NTASKS=8":              with(nil, "SLURM_PROCID", "8", "SLURM_NTASKS", "8"),
		`PMI_RANK=0 and PMI_SIZE=""`:                     with(nil, "PMI_RANK", "0"),
		`OMPI_COMM_WORLD_RANK="-1"`:                      with(slurm, "OMPI_COMM_WORLD_RANK", "-1", "OMPI_COMM_WORLD_SIZE", "2"),
		"torchrun says MASTER_ADDR=h and no MASTER_PORT": with(nil, "RANK", "0", "WORLD_SIZE", "1", "MASTER_ADDR", "h"),
	} {
		_, err := launch.Find(func(name string) string { return env[name] })
		require.ErrorIs(t, err, launch.ErrEnvironment)
		require.ErrorContains(t, err, fault)
	}
}

// with returns an environment with additional variables.
func with(env map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for name, value := range env {
		all[name] = value
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// A command passes its environment, here that of the second of four tasks under Slurm.
func ExampleFind() {
	env := map[string]string{"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
	place, err := launch.Find(func(name string) string { return env[name] })
	fmt.Println(place, err)
	// Output: process 1 of 4, as Slurm says <nil>
}
