package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/transport/tcp"
)

// weir launch hands on the output and the exit status, and flags behind -- are the command's.
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

	folder := filepath.Join(t.TempDir(), "certs")
	require.Zero(t, run([]string{"launch", "certs", folder}, strings.NewReader(""), &out, &errs))
	_, err := tcp.LoadTLS(folder)
	require.NoError(t, err)
	require.NotZero(t, run([]string{"launch", "certs", folder}, strings.NewReader(""), &out, &errs), "it would overwrite them")
}
