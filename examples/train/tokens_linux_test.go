package main

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of 8 GiB of tokens trains in 512 MB of memory, including its mapped pages. The windows
// are long enough to leave a margin: each maps surrounding pages, which the system drops only
// when it needs memory.
func TestTokensLargerThanMemory(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("a 32-bit system cannot map 8 GiB")
	}
	const limit = 512 << 20
	path := filepath.Join(t.TempDir(), "tokens.bin")
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	require.NoError(t, os.Truncate(path, 8<<30)) // sparse
	cmd, folder := program(t, "-data", path, "-tokens", "uint16", "-vocabulary", "1000", "-ranks", "2", "-seq", "256", "-steps", "4")
	require.NoError(t, cmd.Run())
	require.FileExists(t, filepath.Join(folder, "losses.csv"))
	require.Less(t, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss, int64(limit>>10), "KiB at the most")
}

// A file of tokens that is truncated during the run ends it with one line.
func TestTokensCutShort(t *testing.T) {
	path := tokenFile(t, 2, true, counting(1<<20))
	cmd, _ := program(t, "-data", path, "-tokens", "uint16", "-vocabulary", "300", "-steps", "100000000", "-warmup", "0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(stdout)
	cut := false
	for lines.Scan() {
		if !cut && strings.HasPrefix(lines.Text(), "text ") {
			require.NoError(t, os.Truncate(path, 2048))
			cut = true
		}
	}
	require.True(t, cut)
	require.Error(t, cmd.Wait())
	requireOneLine(t, cmd.ProcessState.ExitCode(), stderr.String(), "not a whole file of tokens: it ends before byte")
}
