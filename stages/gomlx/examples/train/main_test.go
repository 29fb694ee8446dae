package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/require"
)

func weights(t *testing.T, s *model.Store) map[string][]float32 {
	all := map[string][]float32{}
	for v := range s.IterVariables() {
		if v.Trainable {
			x, err := tensors.CopyFlatData[float32](v.MustValue())
			require.NoError(t, err)
			all[v.Path()] = x
		}
	}
	return all
}

// TestPlans: every plan gives the losses and the weights of GoMLX's own trainer.
func TestPlans(t *testing.T) {
	const steps, microbatches = 2, 4
	for name := range examples {
		t.Run(name, func(t *testing.T) {
			var first map[string][]float32
			var losses string
			for _, way := range []struct {
				trainer, plan string
				ranks         int
			}{
				{"accumulate", "", 1}, {"weir", "depth-first", 1}, {"weir", "depth-first", 3}, {"weir", "1f1b", 4}, {"weir", "zb-h1", 4}, {"weir", "interleaved", 2},
			} {
				ex, err := prepare(name, way.plan, way.ranks)
				require.NoError(t, err)
				step := ex.weir
				if way.trainer != "weir" {
					step = ex.gomlx
				}
				once, err := step(way.trainer, microbatches)
				require.NoError(t, err)
				var says string
				for range steps {
					line, err := once(t.Context())
					require.NoError(t, err)
					says += strings.Join(strings.Fields(line)[:2], " ") + "; "
				}
				if first == nil {
					first, losses = weights(t, ex.config.Store), says
					require.NotEmpty(t, first)
				}
				require.Equal(t, losses, says, fmt.Sprint(way))
				require.Equal(t, first, weights(t, ex.config.Store), fmt.Sprint(way))
			}
		})
	}
}

// TestMain runs the example in the processes that TestProcesses starts.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_ADDRESS") != "" {
		os.Args = append(os.Args[:1], strings.Fields(os.Getenv("ARGUMENTS"))...)
		main()
		return
	}
	os.Exit(m.Run())
}

// TestProcesses: two processes print the same losses as one, with and without offloading.
func TestProcesses(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	lines := func(size int, flags string) (losses []string) {
		at, texts := "unix:"+filepath.Join(t.TempDir(), "job"), make([]bytes.Buffer, size)
		var started []*exec.Cmd
		for rank := range size {
			c := exec.Command(program)
			c.Env = append(os.Environ(), "ARGUMENTS=-model images -plan 1f1b -ranks 4 -microbatches 8 -steps 2"+flags, "WEIR_ADDRESS="+at, "WEIR_TOKEN=a job",
				fmt.Sprint("WEIR_RANK=", rank), fmt.Sprint("WEIR_SIZE=", size))
			c.Stdout, c.Stderr = &texts[rank], &texts[rank]
			require.NoError(t, c.Start())
			started = append(started, c)
		}
		for rank, c := range started {
			require.NoError(t, c.Wait(), "%s", &texts[rank])
		}
		for line := range strings.Lines(texts[0].String()) {
			if fields := strings.Fields(line); fields[0] == "step" {
				losses = append(losses, strings.Join(fields[:6], " "))
				require.Equal(t, flags != "", strings.Contains(line, "far peak"), line)
			}
		}
		for _, other := range texts[1:] {
			require.Empty(t, other.String())
		}
		return losses
	}
	one := lines(1, "")
	require.Len(t, one, 2)
	require.Equal(t, one, lines(2, ""))
	require.Equal(t, one, lines(2, " -offload 1 -offload-to "+t.TempDir()))
}

// TestBelowByteFrequencies: the GPT's loss is below the entropy of the byte frequencies.
func TestBelowByteFrequencies(t *testing.T) {
	ex, err := prepare("gpt", "depth-first", 1)
	require.NoError(t, err)
	once, err := ex.weir("", 4)
	require.NoError(t, err)
	var last float64
	for i := range 20 {
		line, err := once(t.Context())
		require.NoError(t, err)
		var loss float64
		_, err = fmt.Sscanf(line, "loss %f", &loss)
		require.NoError(t, err)
		if i >= 16 {
			last += loss / 4
		}
	}
	var floor float64
	_, err = fmt.Sscanf(ex.floor, "byte frequencies alone: %f", &floor)
	require.NoError(t, err)
	require.Less(t, last, floor)
}
