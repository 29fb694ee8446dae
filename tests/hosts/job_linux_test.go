package hosts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport/tcp"
)

// programs returns the folder with the programs train and weir, and with the text and the certificates of
// all jobs. The folder is made once.
var programs = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "weir-hosts")
	if err != nil {
		return "", err
	}
	text := strings.Repeat("Rays which differ in colour differ also in degrees of refrangibility.\n", 30)
	out, err := exec.Command("go", "build", "-o", folder+"/", "../../examples/train", "../../cmd/weir").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return folder, errors.Join(err, tcp.WriteCerts(filepath.Join(folder, "certs"), time.Hour), os.WriteFile(filepath.Join(folder, "text"), []byte(text), 0o666))
})

func TestMain(m *testing.M) {
	status := m.Run()
	if folder, _ := programs(); folder != "" {
		_ = os.RemoveAll(folder) // it is one of the system's temporary files
	}
	os.Exit(status)
}

// job is a training run of one process per host.
type job struct {
	*testing.T
	network   *network
	folder    string // for checkpoints and runs, which all hosts share
	flags     []string
	processes []*process
	attempts  int
}

// process is the process of a host.
type process struct {
	cmd       *exec.Cmd
	out, errs buffer
	ended     chan struct{}
	at        time.Time // when it ended
}

// buffer is an output that can be read while it is written.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// train returns the command line of the trainer.
func (j *job) train(flags ...string) []string {
	folder, err := programs()
	require.NoError(j, err)
	return slices.Concat([]string{filepath.Join(folder, "train"), "-data", filepath.Join(folder, "text"), "-steps", "30", "-microbatches", "4",
		"-seq", "16", "-width", "8", "-layers", "2", "-heads", "2", "-warmup", "1", "-tied", "-evaluate", "0"}, j.flags, flags)
}

// start starts a process of the job.
func (j *job) start(cmd *exec.Cmd) *process {
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.folder, &p.out, &p.errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(j, cmd.Start())
	go func() {
		_ = cmd.Wait() // the process has its status
		p.at = time.Now()
		close(p.ended)
	}()
	return p
}

// startAll starts a process on each host.
func (j *job) startAll(flags ...string) {
	folder, err := programs()
	require.NoError(j, err)
	j.processes, j.attempts = nil, j.attempts+1
	for host := range j.network.names {
		cmd := j.network.command(j.T, host, j.train(slices.Concat([]string{"-transport", "tcp:host0:29500", "-tls", filepath.Join(folder, "certs"), "-launcher", "none",
			"-process", fmt.Sprint(host), "-processes", fmt.Sprint(len(j.network.names)), "-checkpoint", "saved", "-resume", "saved", "-checkpoint-every", "1",
			"-run", filepath.Join(fmt.Sprint("host", host), fmt.Sprint("attempt", j.attempts)), "-json", "summary"}, flags)...)...)
		j.processes = append(j.processes, j.start(cmd))
	}
}

// status waits for the end of a process and returns its status.
func (j *job) status(host int) int {
	p := j.processes[host]
	select {
	case <-p.ended:
	case <-time.After(3 * time.Minute):
		require.Fail(j, "a process hangs", "host %d: %s%s", host, p.out.String(), p.errs.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// awaitTraining waits until the job trains.
func (j *job) awaitTraining() {
	for first := j.processes[0]; !strings.Contains(first.out.String(), "folder"); {
		select {
		case <-first.ended:
			require.Fail(j, "it does not train", first.errs.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// finish waits for the end of the training and requires the given weights.
func (j *job) finish(want string) {
	for host, p := range j.processes {
		require.Zero(j, j.status(host), "host %d: %s%s", host, p.out.String(), p.errs.String())
	}
	require.Equal(j, want, weights(j.T, filepath.Join(j.folder, "summary")))
}

// references holds the weights that one process computes, by its flags.
var references sync.Map

// reference returns the weights of the job in one process.
func (j *job) reference() string {
	key := fmt.Sprint(j.flags)
	if known, is := references.Load(key); is {
		return known.(string)
	}
	args := j.train("-run", "alone", "-json", "alone.json")
	alone := j.start(exec.CommandContext(j.Context(), args[0], args[1:]...))
	<-alone.ended
	require.True(j, alone.cmd.ProcessState.Success(), alone.errs.String())
	sum := weights(j.T, filepath.Join(j.folder, "alone.json"))
	references.Store(key, sum)
	return sum
}

// weights reads the hash of the weights from a summary.
func weights(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var s struct {
		Sum string `json:"weights_sha256"`
	}
	require.NoError(t, json.Unmarshal(text, &s))
	require.NotEmpty(t, s.Sum)
	return s.Sum
}
