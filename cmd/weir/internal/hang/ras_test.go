package hang_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/hang"
)

// ras returns what rasDumpCommsToJSON of NCCL 2.30.7 (src/ras/client_support.cc) prints for communicators.
func ras(communicators ...string) string {
	return fmt.Sprintf(`{
  "nccl_version": "2.30.7",
  "cuda_runtime_version": 13000,
  "cuda_driver_version": 13000,
  "timestamp": "2026-06-11 13:06:53",
  "communicators_count": %d,
  "communicators": [
%s
  ],
  "ras": {
    "collection_time_sec": 0.001,
    "timeouts_count": 0
  }
}
`, len(communicators), strings.Join(communicators, ",\n"))
}

// communicator has a rank for each number of started all-reduces. Rank i is on process first plus i. A rank with -1
// does not answer.
func communicator(hash string, first int, started ...int) string {
	var ranks, missing []string
	for rank, n := range started {
		head := fmt.Sprintf(`{"rank": %d, "host": "172.16.64.245", "pid": %d, "cuda_dev": 0, "nvml_dev": %d, "status": `, rank, 100+first+rank, first+rank)
		if n < 0 {
			missing = append(missing, head+`{"unresponsive": true, "considered_dead": false}}`)
			continue
		}
		ranks = append(ranks, head+fmt.Sprintf(`{"init_state": 0, "async_error": 0, "finalize_called": false, "destroy_flag": false, "abort_flag": false},
          "collective_counts": {"Broadcast": 0, "Reduce": 0, "AllGather": 2, "ReduceScatter": 0, "AllReduce": %d}}`, n))
	}
	return fmt.Sprintf(`    {"hash": "%s", "secondary_hash": "0x1:0x2", "size": %d, "ranks_count": %d, "missing_ranks_count": %d, "ranks": [%s], "missing_ranks": [%s]}`,
		hash, len(started), len(ranks), len(missing), strings.Join(ranks, ","), strings.Join(missing, ","))
}

func TestRAS(t *testing.T) {
	for _, test := range []struct {
		text    string
		found   bool
		wants   []string
		awaited []string
	}{
		{ras(communicator("0xa", 0, 7, 7)), false, []string{"All processes answer", "RAS counts no sends and receives"}, nil},
		{ras(communicator("0xa", 0, 7, -1)), true, []string{"no answer from: process 101 on 172.16.64.245, GPU 1, does not answer"}, nil},
		{ras(communicator("0xa", 0, 7, 6, 7, 7)), true, []string{"AllReduce of the communicator 0xa of 4 ranks: rank 1 started 6, ranks 0, 2 and 3 started 7", "a second query"}, []string{"process 101 on 172.16.64.245, GPU 1"}},
		// 101 is behind in one communicator because it waits in the other one, for 102.
		{ras(communicator("0xa", 0, 7, 6), communicator("0xb", 1, 4, 3)), true, nil, []string{"process 102 on 172.16.64.245, GPU 2"}},
		{ras(communicator("0xa", 0, 7, 6), communicator("0xb", 0, 3, 4)), true, []string{"do not say which one"}, nil},
		{ras(strings.Replace(communicator("0xa", 0, 7, 7), `"async_error": 0`, `"async_error": 6`, 1)), true, []string{"error: rank 0 of the communicator 0xa of 2 ranks, process 100"}, nil},
	} {
		require.True(t, hang.IsRAS([]byte(test.text)))
		got, fault := hang.ReadRAS([]byte(test.text))
		require.Nil(t, fault)
		report := got.Report()
		require.Equal(t, test.found, report.Found(), test.text)
		require.Equal(t, test.awaited, report.Awaited)
		for _, want := range test.wants {
			require.Contains(t, report.Text(), want)
		}
	}
	_, fault := hang.ReadRAS([]byte(strings.Replace(ras(), `"timeouts_count"`, `"timeouts"`, 1)))
	require.ErrorContains(t, fault, "timeouts")
	require.False(t, hang.IsRAS([]byte(`{"version": "2.10"}`)))
}

// An answer without communicators, or whose number of communicators is not the stated one, is an error.
func TestRASWithoutCommunicators(t *testing.T) {
	for text, want := range map[string]string{
		ras(): "found no communicator",
		`{"nccl_version": "2.30.7", "communicators": []}`:                               "found no communicator",
		strings.Replace(ras(communicator("a", 0, 1, 1)), `_count": 1`, `_count": 2`, 1): "expected communicators_count 2",
	} {
		_, fault := hang.ReadRAS([]byte(text))
		require.ErrorContains(t, fault, want)
	}
}
