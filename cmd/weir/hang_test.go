package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport"
)

func TestHang(t *testing.T) {
	const dumps = "../../docs/hang/dumps.tar.gz"
	stdout, stderr, status := weir("", "hang", dumps, "--json", "--schedule", "1f1b", "--stages", "4", "--microbatches", "8")
	require.Empty(t, stderr)
	require.Equal(t, atFault, status)
	var found struct {
		Blamed []int
		Waits  []struct {
			Rank, For int
			Certain   bool
		}
		Certain bool
		Plan    struct{ Fits bool }
		States  []struct{ Place string }
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &found))
	require.Equal(t, []int{5}, found.Blamed)
	require.True(t, found.Certain)
	require.Len(t, found.Waits, 7)
	require.True(t, found.Plan.Fits)
	require.Contains(t, found.States[5].Place, "before 2F7")

	plan, _, _ := weir("", "plan", "1f1b", "--ranks", "4", "--microbatches", "8", "--capacity", "0")
	file := filepath.Join(t.TempDir(), "plan.txt")
	require.NoError(t, os.WriteFile(file, []byte(plan), 0o600))
	stdout, _, _ = weir("", "hang", dumps, "--plan", file)
	require.Contains(t, stdout, "rank 5 (pipeline 1, place 2: after 2RECV_F7, before 2F7 or 2RECV_B6)")
	picture := filepath.Join(t.TempDir(), "hang.svg")
	_, _, status = weir("", "hang", dumps, "--plan", file, "-o", picture)
	require.Equal(t, atFault, status)
	require.FileExists(t, picture)
	stdout, _, _ = weir("", "hang", dumps, "--schedule", "1f1b", "--stages", "8", "--microbatches", "8")
	require.Contains(t, stdout, "does not fit the dumps, which are judged without it: no group of 8 ranks")
}

// TestLiveHang reports on a job that runs.
func TestLiveHang(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	process := strconv.Itoa(os.Getpid())
	_, stderr, status := weir("", "hang", process)
	require.Equal(t, misused, status)
	require.Regexp(t, "does not report its status: .*; weir status lists the processes that do", stderr)
	answer := launch.Status{Text: "prepares"}
	server, err := launch.ServeStatus(func() launch.Status { return answer })
	require.NoError(t, err)
	defer server.Close()
	fails(t, misused, "does not say what its ranks wait for: prepares", "", "hang", process)

	late, waits := transport.RankStatus{}, transport.RankStatus{Waits: true}
	waits.Rank, waits.ForRank = 1, 0
	answer = job.Status([]transport.RankStatus{late, waits})
	found := decoded[struct{ Blamed, Behind []int }](t, atFault, "", "hang", process, "--json")
	require.Equal(t, []int{0}, found.Blamed)
	require.Equal(t, []int{1}, found.Behind)
	stdout, _, _ := weir("", "hang", process)
	require.Contains(t, stdout, "rank 1 waits for rank 0: the end of the step")
	_, _, status = weir("", "hang", process, "--schedule", "1f1b")
	require.Equal(t, misused, status)
}

// TestHangStatus checks the exit statuses of inputs without a hang.
func TestHangStatus(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, b []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), b, 0o600))
	}
	write("notes.txt", nil)
	fails(t, misused, "there is no dump among 1 file", "", "hang", folder)

	many := tarOf(t, 1000)
	write("many.tar", many)
	_, stderr, status := weir("", "hang", filepath.Join(folder, "many.tar"))
	require.Equal(t, misused, status)
	require.Contains(t, stderr, "many.tar:x39: not a flight recorder dump: the file is empty\nand 960 more files that are not dumps\n")
	require.NotContains(t, stderr, "x40")
	require.NoError(t, os.Remove(filepath.Join(folder, "many.tar")))

	write("dump_0", []byte("no pickle"))
	fails(t, misused, "dump_0: not a flight recorder dump: byte 0: ", "", "hang", folder)

	const ended = `{"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [{"process_group": "0", "collective_seq_id": 1, "profiling_name": "nccl:all_reduce", "state": "completed"}]}`
	write("dump_0", []byte(ended))
	write("dump_1", []byte(ended))
	stdout, _, status := weir("", "hang", folder)
	require.Equal(t, good, status)
	require.Contains(t, stdout, "no rank waits for another one: nothing is pending on 2 ranks")

	for _, args := range [][]string{{"hang", filepath.Join(folder, "none")}, {"hang", folder, "--plan", "a", "--schedule", "b"}, {"hang", folder, "--schedule", "2f2b"}, {"hang", folder, "-o", "a.svg"}, {"hang", folder, "--schedule", "1f1b", "-o", "a.png"}, {"hang", folder, "--schedule", "1f1b", "-o", filepath.Join(folder, "a.svg")}} {
		_, _, status = weir("", args...)
		require.Equal(t, misused, status, args)
	}
}

// tarOf returns an archive of empty files.
func tarOf(t *testing.T, files int) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x" + strconv.Itoa(i), Mode: 0o600}))
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

// The output of ncclras is diagnosed without dumps. The text is the sample in NCCL's
// docs/userguide/source/troubleshooting/ras.rst.
func TestHangOfRAS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ras.json")
	const sample = `{
  "nccl_version": "2.29.1", "cuda_runtime_version": 13000, "cuda_driver_version": 13000, "timestamp": "2025-12-19 13:06:53", "communicators_count": 1,
  "communicators": [{
    "hash": "0xae94423cfbb2ef4a", "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e", "size": 2, "ranks_count": 1, "missing_ranks_count": 1,
    "ranks": [{
      "rank": 0, "host": "172.16.64.245", "pid": 1524344, "cuda_dev": 0, "nvml_dev": 0,
      "status": {"init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false},
      "collective_counts": {"Broadcast": 0, "Reduce": 0, "AllGather": 0, "ReduceScatter": 0, "AllReduce": 0}
    }],
    "missing_ranks": [{"rank": 1, "host": "172.16.64.245", "pid": 1524345, "cuda_dev": 1, "nvml_dev": 1, "status": {"unresponsive": true, "considered_dead": false}}]
  }],
  "ras": {"collection_time_sec": 0.000, "timeouts_count": 0}
}
`
	require.NoError(t, os.WriteFile(file, []byte(sample), 0o644))
	stdout, stderr, status := weir("", "hang", file)
	require.Equal(t, 1, status, stderr)
	require.Contains(t, stdout, "no answer from: process 1524345 on 172.16.64.245, GPU 1, does not answer\n")
	fails(t, misused, "leave out the plan", "", "hang", file, "--schedule", "1f1b")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(sample, `"size"`, `"sizes"`, 1)), 0o644))
	fails(t, misused, "sizes", "", "hang", file)
}
