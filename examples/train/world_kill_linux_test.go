package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/trainer/launch"
)

// ends waits for a process with a timeout, and returns its exit status.
func ends(t *testing.T, p *process, timeout time.Duration) int {
	t.Helper()
	late := time.AfterFunc(timeout, func() { _ = p.Process.Kill() })
	defer late.Stop()
	_ = p.Wait() // its status has the result
	require.NotEqual(t, -1, p.ProcessState.ExitCode(), "it is still there after %v: %s", timeout, p.errs.String())
	return p.ProcessState.ExitCode()
}

// A restarted job resumes from its last checkpoint to the same bits, even if no other replica has
// the part of the state that the killed process held.
func TestRestartedJob(t *testing.T) {
	t.Run("ranks", func(t *testing.T) { restarted(t, "-ranks", "2") })
	t.Run("replicas", func(t *testing.T) { restarted(t, append(shard(3), "-replicas", "2")...) })
}

// shard returns the flags of a shard level.
func shard(level int) []string { return []string{"-shard", fmt.Sprint(level)} }

func restarted(t *testing.T, flags ...string) {
	text, folder := sentence(t), t.TempDir()
	flags = append(flags, "-data", text, "-steps", "60", "-evaluate", "0")
	whole := summaryOf(t, flags...)
	path, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(asProgram, "1")
	t.Setenv("TMPDIR", temporary)
	saved, summarized := filepath.Join(folder, "saved"), filepath.Join(folder, "summary")
	var out buffer
	job := launch.Job{Processes: 2, Restarts: 3, Stdout: &out, Stderr: &out, Command: append([]string{
		"sh", "-c", `if [ $WEIR_RANK = 1 ] && mkdir "$0"; then
			(while [ ! -e "$1/latest" ]; do sleep 0.01; done; kill -9 $$) &
		fi; shift; exec "$@"`, filepath.Join(folder, "once"), saved, path, "--"},
		slices.Concat(tiny, flags, []string{"-checkpoint", saved, "-resume", saved, "-checkpoint-every", "1", "-json", summarized})...)}
	t.Chdir(folder) // for the run folders
	status, err := job.Run(t.Context())
	require.NoError(t, err, out.String())
	require.Zero(t, status)
	require.Equal(t, 1, strings.Count(out.String(), "starting again"), out.String())
	content := []byte(read(t, summarized))
	var s summary
	require.NoError(t, json.Unmarshal(content, &s))
	require.Positive(t, s.ResumedAt)
	require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256)

	status, err = job.Run(t.Context()) // it has finished: the same command does nothing more
	require.NoError(t, err, out.String())
	require.Zero(t, status)
	require.Equal(t, 1, strings.Count(out.String(), "starting again"), out.String())
	content, err = os.ReadFile(summarized)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &s))
	require.EqualValues(t, 60, s.ResumedAt)
	require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256)
}

// SIGUSR1 prints the status of each rank, and launch.Statuses queries it; the first process has
// the status of all.
func TestStatus(t *testing.T) {
	text := sentence(t)
	all := startJob(t, 2, meeting(t, "unix"), "-data", text, "-steps", "100000", "-evaluate", "0")
	alone, _ := program(t, "-data", text, "-ranks", "2", "-steps", "100000", "-evaluate", "0")
	require.NoError(t, alone.Start())
	t.Setenv("TMPDIR", temporary)
	both := regexp.MustCompile(`^rank 0.+\nrank 1.+\n(rank [01] waits for none; 1 other waits for it \((certain|likely)\): .+\n|ranks 0 and 1 wait for each other \((certain|likely)\): .+\n)$`)
	waits := regexp.MustCompile(`rank [01].+ has waited .+ for \dSEND_\w+ of rank [01]\n`) // whichever is slower
	for _, p := range []*exec.Cmd{all[0].Cmd, alone} {
		require.Eventually(t, func() bool {
			statuses, err := launch.Statuses(p.Process.Pid)
			return err == nil && waits.MatchString(statuses[0].Text) && both.MatchString(statuses[0].Text)
		}, time.Minute, time.Millisecond)
	}
	require.NoError(t, all[0].Process.Signal(syscall.SIGUSR1))
	for !strings.Contains(all[0].errs.String(), "train: rank 1, step ") {
		time.Sleep(time.Millisecond)
	}
	require.Contains(t, all[0].errs.String(), "train: rank 0, step ")
	for _, p := range []*exec.Cmd{all[0].Cmd, all[1].Cmd, alone} {
		require.NoError(t, p.Process.Kill())
		_ = p.Wait() // it was killed
	}
	_, err := launch.Statuses(alone.Process.Pid)
	require.ErrorContains(t, err, "does not report its status")
	require.NoFileExists(t, filepath.Join(temporary, fmt.Sprint("weir-status-", alone.Process.Pid)))
}

// The process of rank 1 of three is stopped: the verdict blames it alone, for its silence.
func TestHangIsReported(t *testing.T) {
	all := startJob(t, 3, meeting(t, "unix"), "-data", sentence(t), "-steps", "100000", "-evaluate", "0")
	t.Setenv("TMPDIR", temporary)
	says := func(want string) func() bool {
		return func() bool {
			statuses, err := launch.Statuses(all[0].Process.Pid)
			return err == nil && regexp.MustCompile(want).MatchString(statuses[0].Text)
		}
	}
	require.Eventually(t, says("(?s)rank 0.+rank 1.+rank 2.+(certain|likely)"), time.Minute, time.Millisecond)
	require.NoError(t, all[1].Process.Signal(syscall.SIGSTOP))
	// Rank 0 may be opening its connection to rank 1, which is no wait of the plan.
	require.Eventually(t, says(`\nrank 1 waits for none; (1 other waits|2 others wait) for it.* \(likely\): rank 1 \(step \d+\) sent its last heartbeat`), 9*time.Second, 10*time.Millisecond)
	for _, p := range all {
		require.NoError(t, p.Process.Kill())
		_ = p.Wait() // it was killed
	}
}

// kills is the number of kills in a run of TestKilledProcesses or TestMPIKilled.
var kills = flag.Int("kills", 3, "number of jobs to kill")

// A process is killed or stopped at a random time. All others exit with the status for the failure
// of another process, name the lost rank and its replica, and leave no partial file. The job then
// resumes from its checkpoint and ends with the weights of an uninterrupted run. A job that had ended
// before the kill does not count.
func TestKilledProcesses(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	text, folder := sentence(t), t.TempDir()
	var jobs [2]struct { // of one replica and of two
		resumes []string
		saved   string
		before  map[string]string
		weights string
	}
	for i := range jobs {
		job, replicas := &jobs[i], fmt.Sprint(i+1)
		job.saved = filepath.Join(folder, replicas)
		interruptedAt(t, "step 1/3", "-data", text, "-checkpoint", job.saved, "-replicas", replicas)
		job.before = files(t, job.saved)
		job.resumes = []string{"-data", text, "-resume", job.saved, "-steps", "60", "-evaluate", "0", "-replicas", replicas}
		job.weights = summaryOf(t, job.resumes...).WeightsSHA256
	}
	schedules := slices.DeleteFunc(schedule.Schedules(), func(s schedule.Schedule) bool { return !s.AscendingBackward }) // to the same bits
	for killed := 0; killed < *kills; {
		processes, signal := 2+random.IntN(3), syscall.SIGKILL
		if random.IntN(6) == 0 {
			signal = syscall.SIGSTOP
		}
		network, plan := []string{"unix", "tcp"}[random.IntN(2)], schedules[random.IntN(len(schedules))].Name
		job, ranks, level, of := &jobs[0], processes, 0, ""
		if random.IntN(2) == 0 { // two replicas of two ranks
			job, processes, ranks, level = &jobs[1], 4, 2, random.IntN(4)
		}
		victim, after := random.IntN(processes), time.Duration(random.Int64N(int64(300*time.Millisecond)))
		if processes > ranks {
			of = fmt.Sprintf(" (rank %d of replica %d)", victim%ranks, victim/ranks)
		}
		name := fmt.Sprintf("%d, %v of %d of %d%s, shard %d, %s, %s", killed, signal, victim, processes, of, level, network, plan)
		t.Run(name, func(t *testing.T) {
			flags := append(job.resumes[:len(job.resumes):len(job.resumes)], "-ranks", fmt.Sprint(ranks), "-plan", plan)
			if level > 0 {
				flags = append(flags, shard(level)...)
			}
			all := startJob(t, processes, meeting(t, network), flags...)
			for !strings.Contains(all[0].out.String(), "folder") {
				require.NoError(t, all[0].Process.Signal(syscall.Signal(0)), all[0].errs.String())
				time.Sleep(time.Millisecond)
			}
			time.Sleep(after)
			require.NoError(t, all[victim].Process.Signal(signal))
			hit := false
			for number, p := range all {
				if number == victim {
					continue
				}
				status := ends(t, p, time.Minute)
				if status == 0 { // it had ended
					continue
				}
				hit = true
				require.Equal(t, launch.Elsewhere, status, p.errs.String())
				require.Contains(t, p.errs.String(), fmt.Sprintf("rank %d is lost%s: ", victim, of))
				require.Equal(t, signal == syscall.SIGSTOP, strings.Contains(p.errs.String(), "it has been silent for 10s"), p.errs.String())
				for path := range files(t, filepath.Dir(p.folder)) {
					require.NotContains(t, path, ".partial")
				}
			}
			_ = all[victim].Process.Kill()
			_ = all[victim].Wait()
			require.Equal(t, job.before, files(t, job.saved))
			if hit {
				killed++
			}

			again := startJob(t, processes, meeting(t, network), append(flags, "-json", "-")...)
			require.Equal(t, job.weights, summaryOfJob(t, again).WeightsSHA256)
		})
		if t.Failed() {
			return
		}
	}
}
