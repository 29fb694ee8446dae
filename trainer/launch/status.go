package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// statusSocket returns the path at which a process serves its status.
func statusSocket(process int) string {
	return filepath.Join(socketFolder(), statusPrefix+strconv.Itoa(process))
}

// statusSockets returns this user's status sockets, by process number.
func statusSockets() map[int]string {
	all := map[int]string{}
	paths, _ := filepath.Glob(filepath.Join(socketFolder(), statusPrefix+"*")) // the pattern is valid unless TMPDIR is unusual
	for _, path := range paths {
		process, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(path), statusPrefix))
		if err == nil && checkSocket(path) == nil {
			all[process] = path
		}
	}
	return all
}

const (
	statusPrefix = "weir-status-"
	maxStatus    = 1 << 20 // maximum size of a status in bytes
)

// patience is the maximum time for sending or receiving a status.
const patience = 10 * time.Second

// ServeStatus answers calls to Statuses by the same user on this host with the result of status,
// until the closer is closed. status may be called from any goroutine.
func ServeStatus(status func() Status) (io.Closer, error) {
	removeLeft()
	path := statusSocket(os.Getpid())
	_ = os.Remove(path) // a killed process with this number may have left it
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = conn.SetDeadline(time.Now().Add(patience)) // a client that does not read gets nothing
				_ = json.NewEncoder(conn).Encode(status())
				_ = conn.Close()
			}()
		}
	}()
	return listener, nil
}

// Status is the status of a process.
type Status struct {
	Process int             `json:"-"` // process number on this host
	Text    string          // lines for people
	Ranks   json.RawMessage `json:",omitempty"` // a []transport.RankStatus for weir hang; may be absent
}

// Statuses queries this user's processes on this host, concurrently: the given ones, or, if none are given, all
// that serve their status. If a process does not answer within ten seconds with a status of at most 1 MiB,
// Statuses returns an error if the process was given, and omits the process otherwise.
func Statuses(processes ...int) (all []Status, err error) {
	removeLeft()
	given := len(processes) > 0
	if !given {
		processes = slices.Sorted(maps.Keys(statusSockets()))
	}
	answers, faults := make([]Status, len(processes)), make([]error, len(processes))
	var asked sync.WaitGroup
	deadline := time.Now().Add(patience)
	for i, process := range processes {
		asked.Go(func() { answers[i], faults[i] = ask(statusSocket(process), deadline) })
	}
	asked.Wait()
	for i, process := range processes {
		switch {
		case faults[i] == nil:
			answers[i].Process = process
			all = append(all, answers[i])
		case given && errors.Is(faults[i], fs.ErrNotExist):
			err = errors.Join(err, fmt.Errorf("launch: process %d does not report its status: it is no trainer of Weir, or has another TMPDIR or user", process))
		case given:
			err = errors.Join(err, fmt.Errorf("launch: process %d does not report its status: %w", process, faults[i]))
		}
	}
	return all, err
}

func gone(process int) bool {
	p, err := os.FindProcess(process)
	return err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

func ask(path string, deadline time.Time) (s Status, err error) {
	if err := checkSocket(path); err != nil {
		return s, err
	}
	dialer := net.Dialer{Deadline: deadline}
	conn, err := dialer.Dial("unix", path)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return s, err
	}
	err = json.NewDecoder(io.LimitReader(conn, maxStatus)).Decode(&s)
	return s, err
}
