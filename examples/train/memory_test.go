package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/terminal"
)

// A run plans the memory of its steps: the summary has the size, and no bit changes.
func TestMemoryIsPlanned(t *testing.T) {
	text := sentence(t)
	for _, ranks := range []string{"1", "2"} {
		planned := summaryOf(t, "-data", text, "-ranks", ranks, "-keep-logits", "-1")
		require.Equal(t, planned.WeightsSHA256, summaryOf(t, "-data", text, "-ranks", ranks).WeightsSHA256, "with logits that are kept")
		free := summaryOf(t, "-data", text, "-ranks", ranks, "-unplanned")
		require.Equal(t, free.WeightsSHA256, planned.WeightsSHA256)
		require.Equal(t, free.PeakBytes, planned.PeakBytes)
		requirePeak(t, &free)
		requirePeak(t, &planned)
		require.Equal(t, free.PeakByClass, planned.PeakByClass)
		for rank := range free.ByRank {
			require.Equal(t, free.ByRank[rank].PeakByClass, planned.ByRank[rank].PeakByClass)
		}
		require.Nil(t, free.PlannedBytes)
		require.Nil(t, free.PlannedPeakByClass)
		require.LessOrEqual(t, *planned.BoundBytes, *planned.PlannedBytes)
		var peak int64
		for _, bytes := range planned.PlannedPeakByClass {
			peak += bytes
		}
		require.LessOrEqual(t, planned.PeakBytes, peak, "the plan is for the longest microbatches")
		require.Equal(t, peak-planned.PlannedPeakByClass["resident"], *planned.BoundBytes)
	}
}

// A run that offloads trains the same weights, prints the size of its far memory, and needs less
// device memory on a rank in the middle.
func TestOffload(t *testing.T) {
	flags := []string{"-data", sentence(t), "-ranks", "4", "-plan", "zb-h2"}
	plain := summaryOf(t, flags...)
	require.Nil(t, plain.Far)
	folder := t.TempDir()
	for _, more := range [][]string{{"-offload", "0.5"}, {"-offload", "1", "-offload-to", folder}} {
		far := summaryOf(t, append(more, flags...)...)
		require.Equal(t, plain.WeightsSHA256, far.WeightsSHA256)
		require.Positive(t, far.Far.PeakBytes)
		require.LessOrEqual(t, far.Far.PeakBytes, far.Far.PlannedBytes)
		require.Less(t, far.ByRank[1].PeakBytes, plain.ByRank[1].PeakBytes, "the first rank has little of its own, and the last no time")
	}
	_, _, out, _ := runTiny(t, append(flags, "-offload", "1", "-offload-to", folder)...)
	require.Regexp(t, `far memory +[^\n]*KiB \([\d,]+ bytes\) at the peak, planned [^\n]*KiB \([\d,]+ bytes\); [\d,]+ waits? for copies`, out)
	require.Regexp(t, `far     .*KiB for the saved state of a rank at most, in a file in `+folder, out)
	_, _, out, _ = runTiny(t, "-data", sentence(t), "-ranks", "2", "-plan", "1f1b", "-offload", "0.5")
	require.Contains(t, out, "far     nothing is moved: ")
	_, _, out, _ = runTiny(t, "-data", sentence(t), "-plan", "gpipe", "-ranks", "1", "-stages", "3", "-layers", "16", "-microbatches", "5", "-offload", "1")
	require.Contains(t, out, "stage 1 (block5..block10) keeps 2 slots near, ")
	for _, faulty := range [][]string{{"-offload", "1.5"}, {"-offload", "0.5", "-unplanned"}, {"-offload", "1", "-offload-to", folder + "/none"}} {
		status, _, _, stderr := runTiny(t, append(flags, faulty...)...)
		require.NotZero(t, status, "%v", faulty)
		require.NotEmpty(t, stderr)
	}
}

// requirePeak requires that the classes at the peak sum to it, on every rank, including
// workspaces.
func requirePeak(t *testing.T, s *summary) {
	t.Helper()
	sum := func(classes map[string]int64) (bytes int64) {
		require.Len(t, classes, memory.NumClasses)
		require.Positive(t, classes["workspace"])
		for _, n := range classes {
			bytes += n
		}
		return bytes
	}
	require.Equal(t, s.PeakBytes, sum(s.PeakByClass))
	for _, rank := range s.ByRank {
		require.Equal(t, rank.PeakBytes, sum(rank.PeakByClass))
		require.Equal(t, rank.ModelBytes, rank.PeakByClass["resident"])
	}
}

// In every record of the log, the live memory is at most that of the plan. The log begins with
// the owners at the planned peak.
func TestLogHasThePlan(t *testing.T) {
	status, folder, stdout, stderr := runTiny(t, "-data", sentence(t))
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "envelope of 3 shape classes; logits are kept\n")
	var samples int
	var atPeak int64
	for _, record := range records(t, folder) {
		if o := record.PeakOwner; o != nil {
			require.Zero(t, samples)
			require.NotEmpty(t, o.Name)
			atPeak += o.Bytes
			continue
		}
		samples++
		require.True(t, record.Planned)
		require.Equal(t, record.Peak, record.PeakClasses.Total())
		require.LessOrEqual(t, record.Live, record.LivePlanned)
		require.LessOrEqual(t, record.Peak, record.PeakPlanned)
		require.LessOrEqual(t, record.PeakPlanned, record.Reserved)
	}
	require.Positive(t, samples)
	require.Equal(t, *summaryOf(t, "-data", sentence(t)).PlannedBytes, atPeak)
}

// Without a plan the log has the owners at the peak of a step after it, if the peak is higher
// than before. With the bytes of the model they sum to the peak of the step's records.
func TestLogHasOwnersWithoutAPlan(t *testing.T) {
	status, folder, _, stderr := runTiny(t, "-data", sentence(t), "-unplanned", "-ranks", "2", "-plan", "1f1b")
	require.Zero(t, status, stderr)
	type key struct {
		step int64
		rank int
	}
	owners, peaks := map[key]int64{}, map[key]int64{}
	var highest [2]int64
	for _, record := range records(t, folder) {
		k := key{record.Step, record.Rank}
		if o := record.PeakOwner; o != nil {
			k = key{o.Step, o.Rank}
			if owners[k] == 0 {
				require.Greater(t, peaks[k], highest[o.Rank], "%v", k)
				highest[o.Rank] = peaks[k]
			}
			require.NotEmpty(t, o.Name)
			owners[k] += o.Bytes
			continue
		}
		require.False(t, record.Planned)
		peaks[k] = max(peaks[k], record.Peak)
		require.Zero(t, owners[k], "they come after the step")
	}
	require.GreaterOrEqual(t, len(owners), 2)
	resident := summaryOf(t, "-data", sentence(t), "-unplanned", "-ranks", "2", "-plan", "1f1b").ByRank
	for k, bytes := range owners {
		require.Equal(t, peaks[k], bytes+resident[k.rank].ModelBytes, "%v", k)
	}
}

// A step over the budget fails before anything is written.
func TestBudget(t *testing.T) {
	text := sentence(t)
	bound := *summaryOf(t, "-data", text).PlannedBytes
	status, folder, _, stderr := runTiny(t, "-data", text, "-budget", "100")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "layout: ")
	require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
	require.NoDirExists(t, folder)
	summaryOf(t, "-data", text, "-budget", "1MiB")
	require.Less(t, bound, int64(1<<20))
}

// TestBudgetOfAudits: a run needs the memory of its audited steps, which have one additional microbatch. If they
// need more than the budget, the run fails before the first step, or keeps no logits.
func TestBudgetOfAudits(t *testing.T) {
	text := sentence(t)
	flags := []string{"-data", text, "-ranks", "2", "-plan", "gpipe", "-microbatches", "6", "-steps", "4"}
	height := func(more ...string) int64 { return *summaryOf(t, append(slices.Clone(flags), more...)...).PlannedBytes }
	plain, seven, audited := height("-keep-logits", "-1"), height("-keep-logits", "-1", "-microbatches", "7"), height("-keep-logits", "-1", "-audit", "3")
	require.Less(t, plain, audited)
	require.Equal(t, seven, audited)
	resumed := &trainer{opts: &options{Options: &job.Options{Audit: 3}, steps: 4}, session: &job.Session{Done: 3}}
	require.Zero(t, resumed.nextAudit())
	status, folder, _, stderr := runTiny(t, append(flags, "-keep-logits", "-1", "-audit", "3", "-budget", fmt.Sprint(audited-1))...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "one that is repeated")
	require.NoDirExists(t, folder)
	all := height("-keep-logits", "1MiB")
	require.Less(t, audited, all)
	require.Equal(t, all, height("-budget", fmt.Sprint(all)))
	require.Equal(t, audited, height("-budget", fmt.Sprint(all), "-audit", "3"))
}

func TestEmitProfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	var out, errs bytes.Buffer
	flags := append(append([]string{}, tiny...), "-data", sentence(t), "-emit-profile", path)
	require.Zero(t, run(t.Context(), flags, &out, &errs), errs.String())
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	profile, err := layout.Read(file)
	require.NoError(t, err)
	require.Len(t, profile.Shapes, 3)
	require.Len(t, profile.Shapes[0].Stages, 4)
	for i := range profile.Shapes[0].Stages { // for plans with sharded gradients and weights
		require.NotNil(t, profile.Shapes[0].Stages[i].ZeroGrad)
		require.NotNil(t, profile.Shapes[0].Stages[i].Gather)
	}

	require.Equal(t, 1, run(t.Context(), append(flags, "-unplanned"), &out, &errs))
	require.Contains(t, errs.String(), "-emit-profile does not train")
}

// leaking is a device that keeps a reference to every float32 buffer.
type leaking struct{ kernels.Device }

func (l leaking) Alloc(class memory.Class, t kernels.DType, n int) (kernels.Buffer, error) {
	b, err := l.Device.Alloc(class, t, n)
	if err == nil && t == kernels.Float32 {
		err = l.Retain(b)
	}
	return b, err
}

// changed is a trainer that a test changes before its first step.
type changed struct {
	*trainer
	change func()
}

func (c changed) Begin(ctx context.Context) error {
	err := c.trainer.Begin(ctx)
	c.change()
	return err
}

// TestAFailureLeavesWhatWasAlive trains on a source that leaks: the run ends on the first
// microbatch, and names the file with the live buffers.
func TestAFailureLeavesWhatWasAlive(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	opts, err := parse(append(append([]string{}, tiny...), "-run", folder, "-data", sentence(t)))
	require.NoError(t, err)
	var out bytes.Buffer
	run := newTrainer(opts)
	run.people, run.out, run.json = &terminal.Output{Writer: &out}, &out, &out
	err = run.explained(run.session.Run(t.Context(), changed{run, func() {
		run.train = &source{leaking{run.devs[0]}, corpus.Reader{Sequence: corpus.Bytes(run.drawn.Text), Windows: run.drawn}, nil}
	}}))
	require.ErrorIs(t, err, batchctx.ErrLeak)
	require.ErrorContains(t, err, "bytes of class entry: an entry part was released with this action and is still referenced, by the source or by a stage that read it")
	require.ErrorContains(t, err, "the live memory at that time is in "+filepath.Join(folder, "failure.jsonl"))
	dump := read(t, filepath.Join(folder, "failure.jsonl"))
	require.Contains(t, dump, `"held by nobody","class":"entry"`)
	require.NoError(t, run.Close())
}
