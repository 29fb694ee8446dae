package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/format"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// planFile writes a plan to a file and returns its path.
func planFile(t *testing.T, name string, write func(w io.Writer) error) string {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, write(&text))
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, text.Bytes(), 0o666))
	return path
}

// A plan read from a file gives the same weights, bit for bit, as the schedule from which it was
// made, in every format.
func TestPlanFiles(t *testing.T) {
	text := sentence(t)
	for _, name := range []string{"1f1b", "zb-v", "dualpipe"} {
		t.Run(name, func(t *testing.T) {
			s, err := schedule.Find(name)
			require.NoError(t, err)
			place, err := s.Place(2, 2*s.PerRank)
			require.NoError(t, err)
			bare, err := s.Rule(schedule.Params{Placement: place, Microbatches: 6})
			require.NoError(t, err)
			lowered, err := lower.Prepare(bare, lower.Passes{StageInfo: make([]schedule.StageInfo, place.Stages()), Capacity: 1})
			require.NoError(t, err)
			want := summaryOf(t, "-data", text, "-ranks", "2", "-microbatches", "6", "-plan", name)
			for file, write := range map[string]func(w io.Writer) error{
				"prepared.json": func(w io.Writer) error { return format.WriteJSON(w, lowered, nil) },
				"compute.csv":   func(w io.Writer) error { return format.Write(w, bare, format.Compute) },
				"comms.csv": func(w io.Writer) error {
					queued := *bare
					queued.Runtime = schedule.PyTorch
					comms, err := lower.Transfers(&queued, 1)
					require.NoError(t, err)
					return format.Write(w, comms, format.Comms)
				},
				"plan.txt": bare.WriteText,
			} {
				path := planFile(t, file, write)
				flags := []string{"-data", text, "-plan", path}
				got := summaryOf(t, append(flags, "-microbatches", "6")...)
				require.Equal(t, want.WeightsSHA256, got.WeightsSHA256, file)
				require.Equal(t, *want.LossHeldout, *got.LossHeldout, file)
				require.Equal(t, want.AscendingBackward, got.AscendingBackward, file)
				require.Equal(t, 2, got.Ranks)
				require.Equal(t, want.Stages, got.Stages)
				require.Zero(t, got.Growth)
			}
		})
	}
}

// The plan that choose finds for measured costs gives the same weights as one rank, bit for bit,
// and its steps are simulated with the costs in its file.
func TestChosenPlan(t *testing.T) {
	text := sentence(t)
	file := filepath.Join(t.TempDir(), "costs.json")
	status, _, _, stderr := runTiny(t, "-data", text, "-emit-costs", file, "-ranks", "2", "-run", "")
	require.Zero(t, status, stderr)
	measured := []byte(read(t, file))
	costs, err := simulate.ReadCosts(bytes.NewReader(measured))
	require.NoError(t, err)
	choice, err := choose.Choose(choose.Request{Ranks: 2, Stages: len(costs.Stages), Microbatches: 5, Costs: costs, Capacity: 1})
	require.NoError(t, err)
	best := planFile(t, "best.json", func(w io.Writer) error { return format.WriteJSON(w, choice.Best.Plan, costs) })
	want, got := summaryOf(t, "-data", text), summaryOf(t, "-data", text, "-plan", best)
	require.Equal(t, want.WeightsSHA256, got.WeightsSHA256)
	require.NotNil(t, got.Simulated)
}

// A plan that is invalid, or that contradicts the flags, is refused. The file determines the ranks,
// the stages and the microbatches.
func TestPlanFileIsRefused(t *testing.T) {
	text := sentence(t)
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 3})
	require.NoError(t, err)
	path := planFile(t, "plan.csv", func(w io.Writer) error { return format.Write(w, plan, format.Compute) })
	broken := planFile(t, "broken.csv", func(w io.Writer) error { _, err := fmt.Fprint(w, "0F0,0B0,0F1\n1F0,1B0\n"); return err })
	nonsense := planFile(t, "plan.json", func(w io.Writer) error { _, err := fmt.Fprint(w, "{"); return err })
	for says, flags := range map[string]string{
		"-ranks is 4, and " + path + " has 2: leave it out":                       "-ranks 4 -plan " + path,
		"-stages is 3, and " + path + " has 2: leave it out":                      "-stages 3 -plan " + path,
		"-group, -cap and -slices are for a schedule, and " + path + " is a plan": "-group 2 -plan " + path,
		"is for 3 microbatches, and its loops cannot be repeated to fit 5":        "-microbatches 5 -plan " + path,
		"Rank 0 never runs 0B1": "-microbatches 2 -plan " + broken,
		nonsense + ":1:":        "-plan " + nonsense,
		"no such file":          "-plan missing.json",
	} {
		status, _, _, stderr := runTiny(t, append(strings.Fields(flags), "-data", text)...)
		require.Equal(t, 1, status)
		require.Contains(t, stderr, says)
	}

	t.Chdir(filepath.Dir(path))
	require.NoError(t, os.Link(path, "plan"))
	status, _, _, stderr := runTiny(t, "-plan", "plan", "-data", text)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, `there is no schedule "plan"`)
	require.Contains(t, stderr, "; for the file of that name give ./plan")

	o, err := parse([]string{"-plan", path})
	require.NoError(t, err)
	require.NoError(t, o.validate())
	require.Equal(t, [3]int{2, 2, 3}, [3]int{o.Ranks, o.Stages, o.Microbatches})
}

// Processes get their share of the ranks in the file.
func TestPlanFileInProcesses(t *testing.T) {
	text := sentence(t)
	plan, err := schedule.Interleaved(schedule.Params{Placement: schedule.Looped(4, 8), Microbatches: 5})
	require.NoError(t, err)
	path := planFile(t, "plan.csv", func(w io.Writer) error { return format.Write(w, plan, format.Compute) })
	want := summaryOf(t, "-data", text)
	got := summaryOfJob(t, startJob(t, 2, meeting(t, "unix"), "-data", text, "-plan", path, "-json", "-"))
	require.Equal(t, want.WeightsSHA256, got.WeightsSHA256)
	require.Equal(t, 4, got.Ranks)
}
