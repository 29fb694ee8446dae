package launch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Exit statuses of a process.
const (
	// Interrupted is the status of a process that ended because it was asked to. A job that ends with
	// this status is not restarted.
	Interrupted = 130
	// Elsewhere is the status of a process that ends because another process has failed.
	Elsewhere = 3
)

// ExitStatus returns the status with which a process of a job should end, so that its launcher can find the
// process that failed: 0 without an error, Interrupted if the error is context.Canceled, Elsewhere if another
// process is the cause, and otherwise 1. Another process is the cause if err wraps an error whose method
// Elsewhere() bool returns true, such as some errors of transport/tcp.
func ExitStatus(err error) int {
	var remote interface{ Elsewhere() bool }
	switch {
	case err == nil:
		return 0
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &remote) && remote.Elsewhere():
		return Elsewhere
	}
	return 1
}

// Job describes processes to start on this host. Processes, Command, Stdout and Stderr must be set.
type Job struct {
	Processes int
	Command   []string
	// Address is the address at which the processes connect, as in tcp.Config; "" selects a
	// Unix socket in a new folder.
	Address string
	// Restarts is the number of times that the job is restarted after a failure. The command
	// must resume from its last checkpoint on its own.
	Restarts int
	// Grace is how long the other processes may run after a process has failed until they are asked to end, and
	// how long they may then run until they are killed; 0 means 15 seconds.
	Grace time.Duration
	// Stdout and Stderr receive the output of the processes, line by line, each prefixed by the
	// process number.
	Stdout, Stderr io.Writer
	// Signals are forwarded to all processes. A job that was sent an interrupt, SIGTERM or SIGHUP
	// is not restarted. The channel may be nil.
	Signals <-chan os.Signal
}

var errInterrupted = errors.New("launch: interrupted")

// exit describes the end of a process.
type exit struct {
	process int
	status  int
	how     string
	killed  bool // by this package
}

// Run runs the job until it ends and returns its exit status: 0, or the status of the process that caused the
// failure, which is 128 plus the signal's number if a signal ended it. The error describes the failure, or says
// that the job was interrupted, or why it was not started; in that case, the status is 1. If ctx ends, Run asks the
// processes to end, and kills them after Grace. The children of a failed process are killed with it, if the
// system has process groups.
func (j *Job) Run(ctx context.Context) (status int, err error) {
	if j.Processes < 1 || len(j.Command) == 0 {
		return 1, fmt.Errorf("launch: %d processes of the command %q", j.Processes, j.Command)
	}
	var mu sync.Mutex // guards both outputs, which may be the same
	out, errs := &lines{&mu, j.Stdout}, &lines{&mu, j.Stderr}
	for restart := 0; ; restart++ {
		status, err = j.runOnce(ctx, out, errs)
		if status == 0 || errors.Is(err, errInterrupted) || ctx.Err() != nil || restart == j.Restarts {
			return status, err
		}
		errs.line(fmt.Appendf(nil, "%v: starting again, %d of %d\n", err, restart+1, j.Restarts))
	}
}

// runOnce runs the job without restarts.
func (j *Job) runOnce(ctx context.Context, out, errs *lines) (int, error) {
	folder, remove, err := Folder()
	if err != nil {
		return 1, err
	}
	defer remove()
	address := cmp.Or(j.Address, "unix:"+filepath.Join(folder, "job"))
	env := append(os.Environ(), weirAddress+"="+address, weirToken+"="+rand.Text(), weirSize+"="+strconv.Itoa(j.Processes))
	var running []*exec.Cmd
	ended := make(chan exit, j.Processes)
	fail := func(err error) (int, error) {
		for _, cmd := range running {
			signal(cmd, os.Kill)
		}
		for range running {
			<-ended
		}
		return 1, fmt.Errorf("launch: %w", limit(err))
	}
	var outputs sync.WaitGroup
	defer outputs.Wait()
	defer lockThread()()
	for number := range j.Processes {
		cmd := exec.Command(j.Command[0], j.Command[1:]...)
		cmd.Env = append(env[:len(env):len(env)], weirRank+"="+strconv.Itoa(number))
		cmd.SysProcAttr = attributes()
		prefix := fmt.Appendf(nil, "[%*d] ", len(strconv.Itoa(j.Processes-1)), number)
		// With files instead of writers, Wait returns when the process ends, not when its
		// children have closed the files that they share with it: by then, other processes may
		// have noticed its end.
		stdout, writeOut, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		stderr, writeErr, err := os.Pipe()
		if err != nil {
			_, _ = stdout.Close(), writeOut.Close() // nothing was written
			return fail(err)
		}
		cmd.Stdout, cmd.Stderr = writeOut, writeErr
		outputs.Go(func() { out.copy(prefix, stdout) })
		outputs.Go(func() { errs.copy(prefix, stderr) })
		err = cmd.Start()
		_, _ = writeOut.Close(), writeErr.Close() // the process has its own copies now
		if err != nil {
			return fail(fmt.Errorf("process %d: %w", number, err))
		}
		running = append(running, cmd)
		go func() {
			e := exitOf(number, cmd.Wait())
			if e.status != 0 {
				signal(cmd, os.Kill) // kill its children too
			}
			ended <- e
			late := time.Now().Add(time.Second) // its children may keep them open indefinitely
			_, _ = stdout.SetReadDeadline(late), stderr.SetReadDeadline(late)
		}()
	}
	exits, interrupted := j.watch(ctx, running, ended)
	status, failure := verdict(exits)
	switch {
	case status == 0:
		return 0, nil
	case status == Interrupted:
		return status, errInterrupted
	case interrupted:
		return status, fmt.Errorf("%w: %s", errInterrupted, failure)
	}
	return status, errors.New("launch: " + failure)
}

// limit adds a remedy to the error of a process that could not be started because of a limit.
func limit(err error) error {
	if errors.Is(err, syscall.EAGAIN) {
		return fmt.Errorf("%w: allow more processes, as with ulimit -u, or in the container", err)
	}
	return diagnostic.Limit(err)
}

// watch waits for all processes, forwards signals, and ends processes that outlive a failure or
// ctx. It reports whether a signal has asked the processes to end.
func (j *Job) watch(ctx context.Context, running []*exec.Cmd, ended <-chan exit) (exits []exit, interrupted bool) {
	all := func(s os.Signal) {
		for _, cmd := range running {
			signal(cmd, s)
		}
	}
	grace := cmp.Or(j.Grace, 15*time.Second)
	deadline := time.NewTimer(grace)
	deadline.Stop()
	asked, killed := false, false
	done := ctx.Done()
	for len(exits) < len(running) || len(j.Signals) > 0 {
		select {
		case e := <-ended:
			e.killed = asked
			if exits = append(exits, e); e.status != 0 && len(exits) < len(running) && !asked {
				deadline.Reset(grace)
			}
		case s := <-j.Signals:
			interrupted = interrupted || ends(s)
			all(s)
		case <-done:
			done, asked = nil, true
			all(syscall.SIGTERM)
			deadline.Reset(grace)
		case <-deadline.C:
			if killed = asked; killed {
				all(os.Kill)
				continue
			}
			asked = true
			all(syscall.SIGTERM)
			deadline.Reset(grace)
		}
	}
	return exits, interrupted
}

// exitOf describes the end of a process.
func exitOf(number int, err error) exit {
	e := exit{process: number}
	var failed *exec.ExitError
	switch {
	case err == nil:
		return e
	case !errors.As(err, &failed):
		e.status, e.how = 1, err.Error()
		return e
	}
	if e.status = failed.ExitCode(); e.status < 0 {
		e.status = 128
		if w, ok := failed.Sys().(syscall.WaitStatus); ok {
			e.status += int(w.Signal())
		}
	}
	e.how = failed.Error()
	return e
}

// verdict returns the exit status of the job, and a text about its failure that distinguishes the cause from the
// consequences; it returns 0 and "" if no process failed. The exits are in the order in which they occurred.
func verdict(exits []exit) (status int, failure string) {
	cause := -1
	var own, consequences []string
	for i, e := range exits {
		switch {
		case e.status == 0:
			continue
		case cause < 0, e.class() < exits[cause].class():
			cause = i
		}
	}
	if cause < 0 {
		return 0, ""
	}
	for i, e := range exits {
		switch text := fmt.Sprintf("%d (%s)", e.process, e.how); {
		case i == cause || e.status == 0:
		case e.class() <= failed:
			own = append(own, text)
		default:
			consequences = append(consequences, text)
		}
	}
	failure = fmt.Sprintf("process %d has failed: %s", exits[cause].process, exits[cause].how)
	if len(own) > 0 {
		failure += "; other failed processes: " + strings.Join(own, ", ")
	}
	if len(consequences) > 0 {
		failure += "; ended because of it: " + strings.Join(consequences, ", ")
	}
	if exits[cause].status == 128+int(syscall.SIGKILL) && !exits[cause].killed {
		failure += " (the system kills processes if memory is short: see dmesg)"
	}
	return exits[cause].status, failure
}

// class classifies a failure. The failure with the lowest class is the cause: a process that did
// not end when the others did, and had to be killed, is more likely the cause than one that ended
// because of them.
func (e *exit) class() int {
	switch {
	case e.status == Elsewhere, e.killed && e.status == Interrupted:
		return consequence
	case e.killed:
		return killed
	case e.status > 128 && !ends(syscall.Signal(e.status-128)):
		return crashed
	}
	return failed
}

// The classes of failures.
const (
	crashed     = iota // by a signal, or because a child crashed; another process may fail because of it without saying so
	failed             // with an error of its own
	killed             // by the launcher
	consequence        // of another process's failure
)

// lines writes the output of several processes in whole lines.
type lines struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lines) line(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(line) // the job continues even if no one reads its output
}

// maxLine is the maximum length of a line in bytes: longer lines are broken.
const maxLine = 64 << 10

// copy copies the output of a process, line by line, with a prefix, and closes the file.
func (l *lines) copy(prefix []byte, from *os.File) {
	r := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := r.ReadSlice('\n') // returns at most maxLine bytes
		if len(line) > 0 {
			l.line(slices.Concat(prefix, bytes.TrimSuffix(line, newline), newline))
		}
		if err != nil && err != bufio.ErrBufferFull { // the process has ended, perhaps some time ago
			break
		}
	}
	_ = from.Close() // the file was only read
}

var newline = []byte("\n")
