package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/checkpoint"
)

// A run with a checkpoint at every step is killed at random times, repeatedly: no logged step
// is lost, the final weights equal those of an uninterrupted run, and no file is left over.
func TestKilledAtRandomTimes(t *testing.T) {
	kills := 5
	if *long {
		kills = 500
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	steps := []string{"-data", sentence(t), "-steps", "30", "-evaluate", "0"}
	whole := summaryOf(t, steps...)

	duration := time.Second // approximate duration of a run
	for killed := 0; killed < kills; {
		saved, before := filepath.Join(t.TempDir(), "checkpoints"), 0
		for before < 30 { // until the run ends normally, or is killed after its last checkpoint
			var out bytes.Buffer
			cmd, folder := program(t, append(steps, "-checkpoint", saved, "-resume", saved, "-checkpoint-every", "1", "-json", "-")...)
			cmd.Stdout, cmd.Stderr = &out, nil
			began := time.Now()
			require.NoError(t, cmd.Start())
			killer := time.AfterFunc(time.Duration(random.Int64N(int64(duration))), func() { _ = cmd.Process.Kill() })
			err := cmd.Wait()
			killer.Stop()
			if err == nil {
				duration = max(time.Since(began), duration/2)
				var s summary
				require.NoError(t, json.Unmarshal(out.Bytes(), &s))
				require.GreaterOrEqual(t, s.ResumedAt, before, "a step was lost")
				require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256, "after %d kills", killed)
				require.Equal(t, []string{"latest", "step-0000000029", "step-0000000030"}, names(t, saved))
				for _, step := range []string{"step-0000000029", "step-0000000030"} {
					require.Regexp(t, `^\[manifest.json rank-0-of-1-\w+.safetensors]$`, names(t, filepath.Join(saved, step)))
				}
				break
			}
			require.Equal(t, -1, cmd.ProcessState.ExitCode(), "it was not killed")
			killed++
			c, passed, err := checkpoint.Newest(saved)
			require.NoError(t, passed)
			if errors.Is(err, checkpoint.ErrNone) {
				require.Zero(t, before)
				continue
			}
			require.NoError(t, err)
			require.GreaterOrEqual(t, int(c.Step), max(before, loggedSteps(t, folder)), "a step was lost")
			before = int(c.Step)
			require.NoError(t, c.Close())
		}
	}
}

// The last step, too, is in a checkpoint before it is logged: a run that is killed in between
// would repeat it.
func TestLoggedIsSaved(t *testing.T) {
	saved := filepath.Join(t.TempDir(), "checkpoints")
	cmd, folder := program(t, "-data", sentence(t), "-steps", "3", "-evaluate", "0", "-checkpoint", saved, "-checkpoint-every", "1")
	cmd.Stdout, cmd.Stderr = nil, nil
	require.NoError(t, cmd.Start())
	for began := time.Now(); loggedSteps(t, folder) < 3; time.Sleep(100 * time.Microsecond) {
		require.Less(t, time.Since(began), time.Minute)
	}
	c, _, err := checkpoint.Newest(saved)
	require.NoError(t, err)
	require.EqualValues(t, 3, c.Step)
	require.NoError(t, c.Close())
	require.NoError(t, cmd.Wait())
}

var lossLine = regexp.MustCompile(`(?m)^(\d+),.*\n`)

// loggedSteps returns the number of steps that a run has logged.
func loggedSteps(t *testing.T, folder string) int {
	t.Helper()
	for _, name := range []string{"losses.csv.partial", "losses.csv"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			return max(len(lossLine.FindAll(content, -1))-1, 0)
		}
	}
	return 0
}
