package launch

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// statusSocket is where a process tells what it does, but for its number.
func statusSocket() string { return filepath.Join(os.TempDir(), "weir-status-") }

// patience bounds how long a process takes to say what it does, or to hear it.
const patience = 10 * time.Second

// ServeStatus answers Statuses of the same user on this host with what text returns, which any
// goroutine may call, until the closer is closed.
func ServeStatus(text func() string) (io.Closer, error) {
	path := statusSocket() + strconv.Itoa(os.Getpid())
	_ = os.Remove(path) // A killed process of this number may have left it.
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
			_ = conn.SetDeadline(time.Now().Add(patience)) // Who does not read gets nothing.
			_, _ = io.WriteString(conn, text())
			_ = conn.Close()
		}
	}()
	return listener, nil
}

// Status is what a process says that it does.
type Status struct {
	Process int    // its number on this host
	Text    string // lines
}

// Statuses asks the processes of this host that serve their status, or those given. Of them, one
// that does not answer is an error.
func Statuses(processes ...int) (all []Status, err error) {
	given := len(processes) > 0
	if !given {
		paths, _ := filepath.Glob(statusSocket() + "*") // The pattern is well-formed unless TMPDIR is odd.
		for _, path := range paths {
			if process, err := strconv.Atoi(strings.TrimPrefix(path, statusSocket())); err == nil {
				processes = append(processes, process)
			}
		}
		slices.Sort(processes)
	}
	for _, process := range processes {
		path := statusSocket() + strconv.Itoa(process)
		text, fault := ask(path)
		if errors.Is(fault, syscall.ECONNREFUSED) && gone(process) { // A process that begins refuses for a moment.
			_ = os.Remove(path)
		}
		switch {
		case fault == nil:
			all = append(all, Status{process, text})
		case given:
			err = errors.Join(err, fmt.Errorf("launch: process %d does not say what it does: %w", process, fault))
		}
	}
	return all, err
}

func gone(process int) bool {
	p, err := os.FindProcess(process)
	return err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

func ask(path string) (string, error) {
	conn, err := net.DialTimeout("unix", path, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(conn, 16<<20))
	return string(text), err
}
