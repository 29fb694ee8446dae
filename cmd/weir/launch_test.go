package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport/tcp"
)

// weir launch passes on the output and the exit status. Flags after -- belong to the command.
func TestLaunch(t *testing.T) {
	var out, errs bytes.Buffer
	status := run([]string{"launch", "-n", "2", "--", "echo", "-n", "-help", "a"}, strings.NewReader(""), &out, &errs)
	require.Zero(t, status, errs.String())
	require.Contains(t, out.String(), "[1] -help a\n")
	require.Equal(t, 2, strings.Count(out.String(), "-help a"))

	status = run([]string{"launch", "--processes=2", "--", "sh", "-c", "exit $((WEIR_RANK * 7))"}, strings.NewReader(""), &out, &errs)
	require.Equal(t, 7, status)
	require.Contains(t, errs.String(), "process 1 has failed: exit status 7")
	require.Equal(t, misused, run([]string{"launch", "echo"}, strings.NewReader(""), &out, &errs))

	// Under nohup, the end of the terminal does not end the job.
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	require.Zero(t, run([]string{"launch", "-n", "1", "--", "sh", "-c", "kill -HUP $PPID; sleep 0.2"}, strings.NewReader(""), &out, &errs), errs.String())

	folder := filepath.Join(t.TempDir(), "certs")
	require.Zero(t, run([]string{"launch", "certs", folder}, strings.NewReader(""), &out, &errs))
	_, err := tcp.LoadTLS(folder)
	require.NoError(t, err)
	require.NotZero(t, run([]string{"launch", "certs", folder}, strings.NewReader(""), &out, &errs), "it would overwrite them")
}

// weir status prints the status of processes; a process that serves no status is an error.
func TestStatus(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	fails(t, misused, "no process on this host reports its status", "", "status")
	server, err := launch.ServeStatus(func() launch.Status { return launch.Status{Text: "rank 0 runs 0F1\nrank 1 waits\n"} })
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("process %d\n  rank 0 runs 0F1\n  rank 1 waits\n", os.Getpid()), succeeds(t, "", "status"))
	require.NoError(t, server.Close())

	waiting := launch.Status{Text: "rank 0 waits", Ranks: json.RawMessage(`[{"Rank": 0, "Waits": true, "ForRank": 1}, {"Rank": 1}]`)}
	server, err = launch.ServeStatus(func() launch.Status { return waiting })
	require.NoError(t, err)
	out := succeeds(t, "", "status", "--json")
	require.Contains(t, out, fmt.Sprintf(`"process": %d`, os.Getpid()))
	require.Contains(t, out, `"for": 1`)
	require.NoError(t, server.Close())

	fails(t, misused, "does not report its status", "", "status", fmt.Sprint(os.Getpid()))
}
