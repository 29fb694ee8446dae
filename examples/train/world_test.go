package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/launch"
)

// process is one process of a job.
type process struct {
	*exec.Cmd
	out, errs buffer
	folder    string
}

// buffer is an output that can be read while it is written.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer // not embedded, because its ReadFrom would bypass the lock
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

// startJob starts a number of processes of the program, which connect at an address.
func startJob(t *testing.T, processes int, address string, flags ...string) []*process {
	t.Helper()
	var all []*process
	for number := range processes {
		p := &process{}
		p.Cmd, p.folder = program(t, append([]string{"-transport", address, "-launcher", "none",
			"-process", fmt.Sprint(number), "-processes", fmt.Sprint(processes)}, flags...)...)
		p.Stdout, p.Stderr = &p.out, &p.errs
		require.NoError(t, p.Start())
		all = append(all, p)
	}
	return all
}

// summaryOfJob waits for processes that were started with -json -, and returns their summary.
func summaryOfJob(t *testing.T, all []*process) (s summary) {
	t.Helper()
	for number, p := range all {
		require.NoError(t, p.Wait(), "process %d: %s", number, p.errs.String())
	}
	require.NoError(t, json.Unmarshal([]byte(all[0].out.String()), &s))
	return s
}

// errorsOf runs a job whose processes are goroutines, one for each list of flags, and returns their errors.
func errorsOf(t *testing.T, address string, flags ...[]string) []string {
	t.Helper()
	errs, texts := make([]strings.Builder, len(flags)), make([]string, len(flags))
	var all sync.WaitGroup
	for number, more := range flags {
		args := slices.Concat(tiny, []string{"-transport", address, "-launcher", "none", "-process", fmt.Sprint(number), "-processes", fmt.Sprint(len(flags))}, more)
		all.Go(func() { run(t.Context(), args, io.Discard, &errs[number]) })
	}
	all.Wait()
	for number := range errs {
		texts[number] = errs[number].String()
	}
	return texts
}

// meeting returns a new address by network.
func meeting(t *testing.T, network string) string {
	t.Helper()
	if network == "unix" {
		return "unix:" + filepath.Join(t.TempDir(), "job")
	}
	pid := os.Getpid() // neither other tests nor connections use ports of this address
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+pid>>16&63, pid>>8&255, pid&255))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return "tcp:" + l.Addr().String()
}

// Every schedule gives the same weights in several processes as in goroutines, bit for bit, and
// one of the processes writes the results of the run.
func TestProcesses(t *testing.T) {
	text := sentence(t)
	trains := func(network string, processes, ranks int, plan string, flags ...string) {
		t.Run(fmt.Sprintf("%s, %d processes, %d ranks, %s", network, processes, ranks, plan), func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"-data", text, "-ranks", fmt.Sprint(ranks), "-plan", plan, "-json", "-"}, flags...)
			want := summaryOf(t, flags[:len(flags):len(flags)]...)
			all := startJob(t, processes, meeting(t, network), flags...)
			got := summaryOfJob(t, all)
			require.Equal(t, want.WeightsSHA256, got.WeightsSHA256)
			require.Equal(t, *want.LossTrain, *got.LossTrain)
			require.Equal(t, *want.LossHeldout, *got.LossHeldout)
			require.Equal(t, want.ModelBytes, got.ModelBytes)
			require.Zero(t, got.Growth)
			require.Equal(t, 2, got.BooksAudited)
			require.Len(t, got.ByRank, ranks)
			for rank := range got.ByRank { // logits kept or not, as the process of the head has chosen
				require.Equal(t, want.ByRank[rank].PeakByClass, got.ByRank[rank].PeakByClass)
			}
			require.Len(t, samples(t, all[0].folder), ranks*3*5)
			page := read(t, filepath.Join(all[0].folder, "report.html"))
			require.Contains(t, page, "The last actions by the clock") // of every rank, or not at all
			require.Equal(t, ranks > 1, strings.Contains(page, "<td>1</td><td>0</td>"), "rank 1 has waited for rank 0")
			for _, p := range all[1:] {
				require.Empty(t, p.out.String())
				require.NoDirExists(t, p.folder)
			}
		})
	}
	for _, s := range schedule.Schedules() {
		trains("unix", 2, 2, s.Name)
	}
	trains("tcp", 1, 1, "depth-first")
	trains("tcp", 1, 2, "1f1b")
	trains("tcp", 2, 2, "zb-h1")
	trains("tcp", 2, 4, "zb-v", "-capacity", "0")
	trains("unix", 4, 4, "dualpipe")
	trains("tcp", 4, 4, "interleaved", "-fp8", "delayed", "-width", "32")
}

// A job writes a checkpoint every two steps while it trains, and resumes from one after all
// processes were killed.
func TestProcessesKilledGoOn(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "checkpoints")
	flags := []string{"-data", sentence(t), "-ranks", "2", "-plan", "1f1b", "-steps", "8", "-evaluate", "0"}
	whole := summaryOf(t, flags...)
	begin := func() []*process {
		return startJob(t, 2, meeting(t, "unix"), append(flags, "-checkpoint", saved, "-resume", saved, "-checkpoint-every", "2", "-json", "-")...)
	}
	killed := begin()
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(saved, "latest")); return err == nil }, time.Minute, time.Millisecond)
	for _, p := range killed {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	c, passed, err := checkpoint.Newest(saved)
	require.NoError(t, errors.Join(err, passed))
	require.Zero(t, c.Step%2)
	require.Equal(t, 2, c.Shards(), "each process writes its own")
	require.NoError(t, c.Close())
	if c.Step == 8 {
		return // it had ended before the kill
	}
	s := summaryOfJob(t, begin())
	require.EqualValues(t, c.Step, s.ResumedAt)
	require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256)
}

// Processes that read different texts report which, and how long they are.
func TestProcessesReadDifferentTexts(t *testing.T) {
	one := sentence(t)
	content := []byte(read(t, one))
	other := filepath.Join(t.TempDir(), "other.txt")
	require.NoError(t, os.WriteFile(other, append(content, '\n'), 0o666))
	for _, text := range errorsOf(t, meeting(t, "unix"), []string{"-data", one}, []string{"-data", other}) {
		require.Contains(t, text, fmt.Sprintf("-data is %s (%d bytes, SHA-256 ", other, len(content)+1))
		require.Contains(t, text, fmt.Sprintf("...) on rank 1 and %s (%d bytes, SHA-256 ", one, len(content)))
	}
}

// Processes that plan memory differently report the difference.
func TestProcessesPlanAlike(t *testing.T) {
	text := sentence(t)
	for flag, values := range map[string][2]string{"-budget": {"1MiB", "2MiB"}, "-keep-logits": {"0", "-1"}} {
		flags := []string{"-data", text, "-run", t.TempDir() + "/run", flag}
		errs := errorsOf(t, meeting(t, "unix"), append(flags[:len(flags):len(flags)], values[0]), append(flags, values[1]))
		require.Contains(t, errs[1], flag+" is ", errs[0])
	}
}

// A folder that the processes do not share is reported before the first step, by every process,
// and nothing is left in it.
func TestCheckpointFolderIsShared(t *testing.T) {
	text, dir := sentence(t), t.TempDir()
	var flags [2][]string
	for number := range flags {
		host := filepath.Join(dir, fmt.Sprint("host", number))
		require.NoError(t, os.Mkdir(host, 0o777))
		flags[number] = []string{"-data", text, "-run", filepath.Join(dir, fmt.Sprint("run", number)), "-checkpoint", filepath.Join(host, "saved")}
	}
	for number, text := range errorsOf(t, meeting(t, "unix"), flags[:]...) {
		require.Contains(t, text, "-checkpoint: process 0 does not see what process 1 writes to "+filepath.Join(dir, "host0", "saved")+": name a folder that all processes share")
		require.Empty(t, names(t, filepath.Join(dir, fmt.Sprint("host", number))))
	}
	require.NoDirExists(t, filepath.Join(dir, "run0"))
}

// A process that is interrupted while it waits for the others has the status of an
// interruption.
func TestInterruptedMeeting(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "job"))
	require.NoError(t, err)
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		conn, err := listener.Accept() // it has connected, and gets no answer
		cancel()
		if err == nil {
			<-t.Context().Done()
			_ = conn.Close()
		}
	}()
	var errs strings.Builder
	args := []string{"-data", sentence(t), "-transport", "unix:" + listener.Addr().String(), "-processes", "2", "-process", "1"}
	require.Equal(t, launch.Interrupted, run(ctx, args, io.Discard, &errs), &errs)
}

// names returns the names in a folder, or nil if it does not exist.
func names(t *testing.T, path string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
