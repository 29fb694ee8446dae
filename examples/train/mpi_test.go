//go:build mpi && linux

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/trainer/checkpoint"
)

var mpirun = flag.String("mpirun", "mpirun", "command that starts so many processes (-n) of MPI")

// mpiCommand returns the launch of a number of processes of the program. If through is a command,
// it starts each process, and gets the program as arguments.
func mpiCommand(t *testing.T, processes int, through []string, flags ...string) *process {
	t.Helper()
	p := &process{}
	p.Cmd, p.folder = program(t, append([]string{"-transport", "mpi", "-json", "-"}, flags...)...)
	words := strings.Fields(*mpirun)
	path, err := exec.LookPath(words[0])
	require.NoError(t, err)
	own, err := os.MkdirTemp(temporary, "") // two Open MPI jobs that begin at once in one folder both create its session folder
	require.NoError(t, err)
	p.Env = append(p.Env, "TMPDIR="+own)
	p.Path, p.Args = path, slices.Concat(words, []string{"-n", fmt.Sprint(processes)}, through, p.Args)
	p.Stdout, p.Stderr = &p.out, &p.errs
	return p
}

// mpiJob starts a number of processes of the program.
func mpiJob(t *testing.T, processes int, flags ...string) *process {
	t.Helper()
	p := mpiCommand(t, processes, nil, flags...)
	require.NoError(t, p.Start())
	return p
}

// weights waits for the end of a job and returns the digest of its weights.
func (p *process) weights(t *testing.T) string {
	t.Helper()
	require.NoError(t, p.Wait(), p.errs.String())
	var s summary
	require.NoError(t, json.Unmarshal([]byte(p.out.String()), &s), p.out.String())
	require.Zero(t, s.Growth)
	return s.WeightsSHA256
}

// A schedule trains in MPI processes to the same bits as in goroutines: some on two and four
// ranks, and under -long each on one, two and four.
func TestMPI(t *testing.T) {
	text := sentence(t)
	trains := func(processes, ranks int, plan string, flags ...string) {
		t.Run(fmt.Sprintf("%d processes, %d ranks, %s", processes, ranks, plan), func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"-data", text, "-steps", "20", "-evaluate", "0", "-ranks", fmt.Sprint(ranks), "-plan", plan}, flags...)
			want := summaryOf(t, flags...).WeightsSHA256
			require.Equal(t, want, mpiJob(t, processes, flags...).weights(t))
		})
	}
	few := []string{"1f1b", "dualpipe", "interleaved", "zb-v"}
	on := map[int][]string{1: few[:1], 2: few, 4: few}
	if *long {
		var all []string
		for _, s := range schedule.Schedules() {
			all = append(all, s.Name)
		}
		on = map[int][]string{1: all, 2: all, 4: all}
	}
	for ranks, plans := range on {
		for _, plan := range plans {
			trains(ranks, ranks, plan)
		}
	}
	trains(2, 4, "zb-v", "-capacity", "0")
	trains(4, 4, "1f1b", "-fp8", "delayed", "-width", "32", "-capacity", "-1")
}

// Replicas train in MPI processes to the bits of goroutines, at every level.
func TestMPIReplicas(t *testing.T) {
	requireReplicas(t, arrangements(), func(t *testing.T, processes int, flags ...string) (s summary) {
		p := mpiJob(t, processes, flags...)
		require.NoError(t, p.Wait(), p.errs.String())
		require.NoError(t, json.Unmarshal([]byte(p.out.String()), &s), p.out.String())
		return s
	})
}

// ranksOf returns the live processes of a job.
func (p *process) ranksOf(t *testing.T) (pids []int) {
	own, err := os.Executable()
	require.NoError(t, err)
	all, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, at := range all {
		exe, _ := os.Readlink(filepath.Join(at, "exe"))
		args, _ := os.ReadFile(filepath.Join(at, "cmdline"))
		if pid, _ := strconv.Atoi(filepath.Base(at)); exe == own && strings.Contains(string(args), p.folder) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// A process is killed at a random time: the launcher ends the job with a nonzero status, no
// process remains, every checkpoint is whole or absent, and the job resumes from the last one
// and ends with the weights of an uninterrupted run.
func TestMPIKilled(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	flags := []string{"-data", sentence(t), "-evaluate", "0", "-steps", "100"}
	whole := summaryOf(t, flags...).WeightsSHA256
	plans := []string{"1f1b", "zb-v", "depth-first", "dualpipev", "interleaved"}
	said, done, began := 0, 0, 0
	for kill := range *kills {
		processes, saved := 2+random.IntN(3), filepath.Join(t.TempDir(), "saved")
		flags := append(flags[:len(flags):len(flags)], "-ranks", fmt.Sprint(processes), "-plan", plans[random.IntN(len(plans))],
			"-checkpoint", saved, "-resume", saved, "-checkpoint-every", "20")
		p := mpiJob(t, processes, flags...)
		var ranks []int
		require.Eventually(t, func() bool {
			ranks = p.ranksOf(t)
			return len(ranks) == processes && strings.Contains(p.errs.String(), "folder")
		}, time.Minute, time.Millisecond, "%s", &p.errs)
		if kill%2 == 0 { // while checkpoints are written
			require.Eventually(t, func() bool {
				_, err := os.Stat(filepath.Join(saved, "latest"))
				return err == nil || len(p.ranksOf(t)) < processes
			}, time.Minute, time.Millisecond)
		}
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		_ = syscall.Kill(ranks[random.IntN(processes)], syscall.SIGKILL) // it may have ended
		status := ends(t, p, time.Minute)
		require.Eventually(t, func() bool { return len(p.ranksOf(t)) == 0 }, time.Minute, time.Millisecond)
		if strings.Contains(p.errs.String(), "has waited") {
			said++
		}
		if status == 0 {
			done++
		}
		c, passed, err := checkpoint.Newest(saved)
		require.NoError(t, passed)
		if err == nil {
			began++
			require.NoError(t, c.Close())
		} else {
			require.ErrorIs(t, err, checkpoint.ErrNone)
		}
		require.Equal(t, whole, mpiJob(t, processes, flags...).weights(t))
	}
	t.Logf("of %d jobs %d were done before, %d had a checkpoint; in %d a process said what it had waited for", *kills, done, began, said)
}

// Processes with different settings report the difference, and end with a nonzero status.
func TestMPIDiffers(t *testing.T) {
	p := mpiCommand(t, 2, []string{"sh", "-c", `exec "$0" "$@" -seq $((16 + ${OMPI_COMM_WORLD_RANK:-$PMI_RANK}))`}, "-data", sentence(t))
	require.Error(t, p.Run())
	require.Contains(t, p.errs.String(), "-seq is 17 on rank 1 and 16 on rank 0")
}

// A process that waits for one which never starts MPI ends at the first signal.
func TestMPIMissing(t *testing.T) {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		waits := filepath.Join(t.TempDir(), "waits")
		script := `if [ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 0 ]; then echo $$ >` + waits + `; exec "$0" "$@"; fi
			until [ -s ` + waits + ` ]; do sleep 0.1; done; while kill -0 $(cat ` + waits + `); do sleep 0.1; done; exit 1`
		p := mpiCommand(t, 2, []string{"sh", "-c", script}, "-data", sentence(t))
		require.NoError(t, p.Start())
		var ranks []int
		require.Eventually(t, func() bool { ranks = p.ranksOf(t); return len(ranks) == 1 }, time.Minute, time.Millisecond)
		time.Sleep(wait) // the signal must arrive in MPI_Init, or it is sent again later
		require.NoError(t, syscall.Kill(ranks[0], syscall.SIGTERM))
		require.NotZero(t, ends(t, p, time.Minute))
		if strings.Contains(p.errs.String(), "interrupted before the first step") {
			return
		}
		require.Less(t, wait, 10*time.Second, "%s", &p.errs)
	}
}
