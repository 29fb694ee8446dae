package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/launch"
)

// ends waits for a process for so long, and returns its exit status.
func ends(t *testing.T, p *process, within time.Duration) int {
	t.Helper()
	late := time.AfterFunc(within, func() { _ = p.Process.Kill() })
	defer late.Stop()
	_ = p.Wait() // its status says it
	require.NotEqual(t, -1, p.ProcessState.ExitCode(), "it is still there after %v: %s", within, p.errs.String())
	return p.ProcessState.ExitCode()
}

// files returns what a folder has, by path.
func files(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		all[path] = string(content)
		return err
	}))
	return all
}

// A job that is started again goes on from its last checkpoint to the same bits.
func TestRestartedJob(t *testing.T) {
	text, folder := sentence(t), t.TempDir()
	flags := []string{"-data", text, "-steps", "60", "-evaluate", "0", "-ranks", "2"}
	whole := summaryOf(t, flags...)
	path, err := os.Executable()
	require.NoError(t, err)
	t.Setenv(asProgram, "1")
	saved, summarized := filepath.Join(folder, "saved"), filepath.Join(folder, "summary")
	var out buffer
	job := launch.Job{Processes: 2, Restarts: 3, Stdout: &out, Stderr: &out, Command: append([]string{
		"sh", "-c", `if [ $WEIR_RANK = 1 ] && mkdir "$0"; then
			(while [ ! -e "$1/latest" ]; do sleep 0.01; done; kill -9 $$) &
		fi; shift; exec "$@"`, filepath.Join(folder, "once"), saved, path, "--"},
		slices.Concat(tiny, flags, []string{"-checkpoint", saved, "-resume", saved, "-checkpoint-every", "1", "-json", summarized})...)}
	t.Chdir(folder) // of the run folders
	status, err := job.Run(t.Context())
	require.NoError(t, err, out.String())
	require.Zero(t, status)
	require.Equal(t, 1, strings.Count(out.String(), "starting again"), out.String())
	content, err := os.ReadFile(summarized)
	require.NoError(t, err)
	var s summary
	require.NoError(t, json.Unmarshal(content, &s))
	require.Positive(t, s.ResumedAt)
	require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256)
}

// SIGUSR1 shows what each rank does; the first process knows of all.
func TestStatus(t *testing.T) {
	all := job(t, 2, meeting(t, "unix"), "-data", sentence(t), "-steps", "100000", "-evaluate", "0")
	for !strings.Contains(all[0].out.String(), "folder") {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, all[0].Process.Signal(syscall.SIGUSR1))
	for !strings.Contains(all[0].errs.String(), "train: rank 1, step ") {
		time.Sleep(time.Millisecond)
	}
	require.Contains(t, all[0].errs.String(), "train: rank 0, step ")
	for _, p := range all {
		require.NoError(t, p.Process.Kill())
		_ = p.Wait() // it was killed
	}
}

// A process is killed, or stopped, at a random time: all others end by themselves with the
// status of a consequence, they name the rank that is lost, their files are whole, and the job
// goes on from its checkpoint to the bits of a run that nobody killed.
func TestKilledProcesses(t *testing.T) {
	kills := 6
	if *long {
		kills = 1000
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	text, saved := sentence(t), filepath.Join(t.TempDir(), "checkpoint")
	interruptedAt(t, "step 1/3", "-data", text, "-checkpoint", saved)
	before := files(t, saved)
	resumes := []string{"-data", text, "-resume", saved, "-steps", "60", "-evaluate", "0"}
	whole := summaryOf(t, resumes...)
	plans := []string{"1f1b", "zb-v", "depth-first", "dualpipev", "interleaved"}
	for kill := range kills {
		processes := 2 + random.IntN(3)
		network := []string{"unix", "tcp"}[random.IntN(2)]
		flags := append(resumes[:len(resumes):len(resumes)], "-ranks", fmt.Sprint(processes), "-plan", plans[random.IntN(len(plans))])
		stops := kill%6 == 5
		all := job(t, processes, meeting(t, network), flags...)
		victim := random.IntN(processes)
		for !strings.Contains(all[0].out.String(), "folder") {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
		within, signal := 4*time.Second, syscall.SIGKILL // 2 s, and a loaded machine
		if stops {
			within, signal = 16*time.Second, syscall.SIGSTOP
		}
		require.NoError(t, all[victim].Process.Signal(signal))
		for number, p := range all {
			if number == victim {
				continue
			}
			status := ends(t, p, within)
			if status == 0 { // it was done
				continue
			}
			require.Equal(t, launch.Elsewhere, status, p.errs.String())
			require.Contains(t, p.errs.String(), fmt.Sprintf("rank %d is lost", victim))
			for path := range files(t, filepath.Dir(p.folder)) {
				require.NotContains(t, path, ".partial")
			}
		}
		_ = all[victim].Process.Kill()
		_ = all[victim].Wait()
		require.Equal(t, before, files(t, saved))

		again := job(t, processes, meeting(t, network), append(flags, "-json", "-")...)
		for _, p := range again {
			require.NoError(t, p.Wait(), p.errs.String())
		}
		var s summary
		require.NoError(t, json.Unmarshal([]byte(again[0].out.String()), &s))
		require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256)
	}
}
