package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/terminal"
)

// Every plan of the catalog gives the same weights on several ranks as on one, bit for bit. If
// its backward order does not ascend, the losses are equal within rounding.
func TestRanks(t *testing.T) {
	skipShort(t)
	text := sentence(t)
	on := map[string][]int{"5": {2}, "2": {4}}
	if *long {
		on["5"] = []int{2, 4}
	}
	for microbatches, onRanks := range on {
		want := summaryOf(t, "-data", text, "-microbatches", microbatches)
		for _, ranks := range onRanks {
			for _, s := range schedule.Schedules() {
				t.Run(fmt.Sprintf("%s on %d ranks, %s microbatches", s.Name, ranks, microbatches), func(t *testing.T) {
					flags := []string{"-data", text, "-microbatches", microbatches, "-ranks", fmt.Sprint(ranks), "-plan", s.Name}
					if s.Name == "seq1f1b" {
						flags = append(flags, "-slices", "2")
					}
					got := summaryOf(t, flags...)
					requireTrained(t, &want, &got)
					require.Equal(t, s.AscendingBackward, got.AscendingBackward)
					require.Equal(t, ranks, got.Ranks)
					require.Equal(t, ranks*s.PerRank, got.Stages)
				})
			}
		}
	}
}

// requireTrained requires the numbers of another run: the same bits, or, if the backward does
// not ascend, nearly the same.
func requireTrained(t *testing.T, want, got *summary) {
	t.Helper()
	require.Zero(t, got.Growth)
	require.Equal(t, 2, got.BooksAudited)
	require.Equal(t, want.GrowthOver, got.GrowthOver)
	require.Len(t, got.ByRank, got.Ranks)
	if got.AscendingBackward {
		require.Equal(t, want.WeightsSHA256, got.WeightsSHA256)
		require.Equal(t, *want.LossTrain, *got.LossTrain)
		require.Equal(t, *want.LossHeldout, *got.LossHeldout)
		return
	}
	require.NotEqual(t, want.WeightsSHA256, got.WeightsSHA256, "the order of sums differs")
	require.Equal(t, *want.LossTrainFirst, *got.LossTrainFirst, "before the first update nothing differs")
	require.InDelta(t, *want.LossTrain, *got.LossTrain, 1e-5)
	require.InDelta(t, *want.LossHeldout, *got.LossHeldout, 1e-5)
}

// Other settings of how a step runs change no bit either.
func TestWaysToRun(t *testing.T) {
	text := sentence(t)
	want := summaryOf(t, "-data", text)
	for _, flags := range []string{
		"-ranks 1 -plan zb-v",
		"-ranks 1 -plan dualpipev -recompute",
		"-ranks 2 -plan zb-h2 -cap 3 -recompute",
		"-ranks 3 -cap 2",
		"-ranks 3 -stages 7 -capacity 0",
		"-ranks 3 -plan zb1p -group 3 -stages 9 -capacity -1",
		"-ranks 2 -plan seq1f1b",
		"-ranks 4 -plan breadth-first -capacity 3",
		"-ranks 4 -plan gpipe -stages 2",
		"-ranks 2 -plan breadth-first -descending",
		"-ranks 2 -plan dualpipe -capacity 0",
	} {
		t.Run(flags, func(t *testing.T) {
			got := summaryOf(t, append(strings.Fields(flags), "-data", text)...)
			requireTrained(t, &want, &got)
		})
	}
}

// TestRanksWriteAll checks the files of a run on several ranks.
func TestRanksWriteAll(t *testing.T) {
	text := sentence(t)
	_, one, _, _ := runTiny(t, "-data", text)
	status, folder, stdout, stderr := runTiny(t, "-data", text, "-ranks", "3", "-plan", "zb-v", "-capacity", "2")
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "6 stages on 3 ranks, zb-v")
	require.Contains(t, stdout, "links of capacity 2")
	require.Contains(t, stdout, "2 of the 6 stages only pass on their inputs; -layers 4 gives each a part")
	require.Contains(t, stdout, "step 3/3")
	require.Contains(t, stdout, "  bubble ")
	require.Contains(t, stdout, "0 bytes over 15 microbatches on 3 ranks")
	for _, stages := range []string{"0 5", "1 4", "2 3"} {
		require.Contains(t, stdout, stages, "the stages of a rank")
	}

	var seen [3][3][5]int // by rank, step and microbatch
	for _, record := range samples(t, folder) {
		require.Zero(t, record.Growth)
		seen[record.Rank][record.Step][record.Microbatch]++
	}
	for rank := range seen {
		for step := range seen[rank] {
			require.Equal(t, [5]int{1, 1, 1, 1, 1}, seen[rank][step], "rank %d, step %d", rank, step)
		}
	}

	page := read(t, filepath.Join(folder, "report.html"))
	require.Equal(t, 6, strings.Count(page, `<svg class="wide"`))
	require.Contains(t, page, "<h2>Ranks</h2>")
	require.Contains(t, page, "which had the highest peak.")
	require.Contains(t, page, "(I and W)")
	require.Equal(t, losses(t, one), losses(t, folder))
}

// losses reads losses.csv without the times.
func losses(t *testing.T, folder string) (rows [][]string) {
	t.Helper()
	content := read(t, filepath.Join(folder, "losses.csv"))
	for line := range strings.Lines(content) {
		columns := strings.Split(strings.TrimSpace(line), ",")
		columns[5] = ""
		rows = append(rows, columns)
	}
	return rows
}

// A run resumes with another plan on other ranks, to the same bits: two of them have a copy of
// the tied table then.
func TestResumeOnOtherRanks(t *testing.T) {
	text, checkpoint := sentence(t), filepath.Join(t.TempDir(), "checkpoint")
	whole := summaryOf(t, "-data", text)
	interruptedAt(t, "step 1/3", "-data", text, "-checkpoint", checkpoint, "-ranks", "2", "-plan", "zb-v")

	s := resumed(t, "-data", text, "-resume", checkpoint, "-ranks", "4", "-plan", "1f1b")
	require.Equal(t, 1, s.ResumedAt)
	require.Equal(t, whole.WeightsSHA256, s.WeightsSHA256)
	require.Equal(t, *whole.LossHeldout, *s.LossHeldout)
}

// TestAFailureOnOneRank makes the source of the last rank leak: all ranks end, and each writes
// its live buffers.
func TestAFailureOnOneRank(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	opts, err := parse(append(append([]string{}, tiny...), "-run", folder, "-data", sentence(t), "-ranks", "2"))
	require.NoError(t, err)
	var out bytes.Buffer
	run := newTrainer(opts)
	run.people, run.out, run.json = &terminal.Output{Writer: &out}, &out, &out
	err = run.explained(run.session.Run(t.Context(), changed{run, func() {
		run.train = runner.PerRank[kernels.Buffer](
			&source{run.devs[0], corpus.Reader{Sequence: corpus.Bytes(run.drawn.Text), Windows: run.drawn}, nil},
			&source{leaking{run.devs[1]}, corpus.Reader{Sequence: corpus.Bytes(run.drawn.Text), Windows: run.drawn}, nil})
	}}))
	require.ErrorIs(t, err, batchctx.ErrLeak)
	require.ErrorContains(t, err, "rank 1")
	for rank, leaks := range []bool{false, true} {
		path := filepath.Join(folder, fmt.Sprintf("failure.rank%d.jsonl", rank))
		require.ErrorContains(t, err, path)
		dump := read(t, path)
		require.Equal(t, leaks, strings.Contains(dump, `"held by nobody","class":"entry"`))
	}
	require.NoError(t, run.Close())
}

// TestAudits: audits find nothing, and change neither weights nor FP8's statistics.
func TestAudits(t *testing.T) {
	skipShort(t)
	for _, args := range [][]string{
		{"-fp8", "delayed", "-width", "32"},
		{"-ranks", "2", "-plan", "zb-v", "-replicas", "2", "-shard", "2", "-sums", "-microbatches", "7"},
		{"-ranks", "2", "-plan", "interleaved", "-recompute", "-tied", "-offload", "0.5", "-dropout", "0.1"},
	} {
		args = append([]string{"-steps", "4", "-microbatches", "6"}, args...)
		want, got := summaryOf(t, args...), summaryOf(t, append(args, "-audit", "2")...)
		require.Equal(t, []int{0, 2}, []int{want.AuditedSteps, got.AuditedSteps})
		require.Equal(t, want.WeightsSHA256, got.WeightsSHA256, args)
		require.Equal(t, want.FP8Roles, got.FP8Roles)
	}
}
