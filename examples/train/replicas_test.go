package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/checkpoint"
)

// shared are the flags of a model with parameters that replicas shard in parts, and parameters that one
// replica owns whole. The 7 microbatches cannot be divided evenly among 2 or 4 replicas.
var shared = []string{"-width", "256", "-layers", "1", "-seq", "8", "-evaluate", "0", "-microbatches", "7"}

// arrangement is a number of replicas, of their ranks, and a shard level.
type arrangement struct{ replicas, ranks, shard int }

func (a arrangement) String() string {
	return fmt.Sprintf("%d replicas of %d ranks, shard %d", a.replicas, a.ranks, a.shard)
}

// flags returns the flags of an arrangement.
func (a arrangement) flags(more ...string) []string {
	plan := map[int]string{1: "depth-first", 2: "1f1b", 4: "zb-h1"}[a.ranks]
	flags := append([]string{"-replicas", fmt.Sprint(a.replicas), "-ranks", fmt.Sprint(a.ranks), "-plan", plan, "-shard", fmt.Sprint(a.shard)}, more...)
	if a.shard == 3 && a.ranks == 1 {
		flags = append(flags, "-gathered", "2")
	}
	return flags
}

// arrangements returns some arrangements, and with -long all of 1, 2 and 4 replicas and ranks.
func arrangements() (all []arrangement) {
	if !*long {
		return []arrangement{{1, 2, 0}, {2, 1, 0}, {2, 1, 1}, {2, 2, 2}, {2, 2, 3}, {4, 1, 3}, {4, 2, 1}}
	}
	for _, replicas := range []int{1, 2, 4} {
		for _, ranks := range []int{1, 2, 4} {
			for shard := range 4 {
				if replicas > 1 || shard == 0 {
					all = append(all, arrangement{replicas, ranks, shard})
				}
			}
		}
	}
	return all
}

// requireReplicas requires that every arrangement that launch runs ends with the same weights as the
// same number of replicas of one rank, at shard level 0, in goroutines. The losses of different
// numbers of replicas differ only by rounding, because the gradients are summed in a different order.
func requireReplicas(t *testing.T, all []arrangement, launch func(t *testing.T, processes int, flags ...string) summary) {
	flags := append([]string{"-data", sentence(t)}, shared...)
	one := summaryOf(t, append(flags[:len(flags):len(flags)], arrangement{1, 1, 0}.flags()...)...)
	want := map[int]summary{1: one}
	for _, a := range all {
		if _, known := want[a.replicas]; !known {
			want[a.replicas] = summaryOf(t, append(flags[:len(flags):len(flags)], arrangement{a.replicas, 1, 0}.flags()...)...)
			require.InEpsilon(t, *one.LossTrain, *want[a.replicas].LossTrain, 1e-5)
			require.NotEqual(t, one.WeightsSHA256, want[a.replicas].WeightsSHA256, "the order of sums differs")
		}
		t.Run(a.String(), func(t *testing.T) {
			got := launch(t, min(a.replicas*a.ranks, 4), append(flags[:len(flags):len(flags)], a.flags()...)...)
			require.Equal(t, want[a.replicas].WeightsSHA256, got.WeightsSHA256)
			require.Equal(t, *want[a.replicas].LossTrain, *got.LossTrain)
			require.Len(t, got.ByRank, a.replicas*a.ranks)
			require.Zero(t, got.Growth)
			require.Equal(t, 2, got.BooksAudited)
		})
	}
}

// TestReplicas requires the same bits at every level and from every layout of a number of replicas.
func TestReplicas(t *testing.T) {
	skipShort(t)
	requireReplicas(t, arrangements(), func(t *testing.T, _ int, flags ...string) summary { return summaryOf(t, flags...) })
}

// TestReplicasInFP8 is TestReplicas in FP8: copies of weights are made of the gathered ones, and
// scales follow the tensors of all replicas.
func TestReplicasInFP8(t *testing.T) {
	skipShort(t)
	flags := append([]string{"-data", sentence(t), "-fp8", "delayed", "-fp8-attention"}, shared...)
	want := summaryOf(t, append(flags[:len(flags):len(flags)], arrangement{2, 1, 0}.flags()...)...)
	for _, a := range []arrangement{{2, 1, 3}, {2, 2, 2}, {2, 2, 3}} {
		require.Equal(t, want.WeightsSHA256, summaryOf(t, append(flags[:len(flags):len(flags)], a.flags()...)...).WeightsSHA256, a)
	}
}

// TestReplicasInProcesses is TestReplicas in processes over sockets.
func TestReplicasInProcesses(t *testing.T) {
	skipShort(t)
	all := arrangements()
	if !*long {
		all = all[len(all)-3:]
	}
	requireReplicas(t, all, func(t *testing.T, processes int, flags ...string) summary {
		return summaryOfJob(t, startJob(t, processes, meeting(t, "unix"), append(flags, "-json", "-")...))
	})
}

// TestReplicasResume resumes a checkpoint of one arrangement in another, and back. After each part
// the weights equal those of the same number of one-rank replicas that shard nothing.
func TestReplicasResume(t *testing.T) {
	skipShort(t)
	text := sentence(t)
	// path trains two steps in each arrangement, and returns the hashes of the weights.
	path := func(way ...arrangement) (hashes []string) {
		saved := filepath.Join(t.TempDir(), "saved")
		for i, a := range way {
			flags := append([]string{"-data", text, "-steps", fmt.Sprint(2 * (i + 1)), "-checkpoint", saved, "-resume", saved}, shared...)
			s := summaryOf(t, append(flags, a.flags()...)...)
			require.Equal(t, 2*i, s.ResumedAt)
			hashes = append(hashes, s.WeightsSHA256)
		}
		return hashes
	}
	require.Equal(t, path(arrangement{4, 1, 0}, arrangement{2, 1, 0}, arrangement{4, 1, 0}), path(arrangement{4, 2, 3}, arrangement{2, 4, 1}, arrangement{4, 2, 3}))
}

// TestReplicasPlanned compares the bytes of four replicas at every level: planned and measured by
// class, and those of the model in all replicas with the formulas. float32 weights, gradients and
// two moments are 16 bytes for a weight.
func TestReplicasPlanned(t *testing.T) {
	skipShort(t)
	const replicas = 4
	text, chunks := sentence(t), int64(0)
	for shard, bytes := range []int64{16 * replicas, 8*replicas + 8, 4*replicas + 12, 16} {
		flags := append([]string{"-data", text, "-tied=false"}, shared...)
		s := summaryOf(t, append(flags, arrangement{replicas, 1, shard}.flags()...)...)
		require.Equal(t, s.PlannedPeakByClass, s.ByRank[0].PeakByClass, "shard %d", shard)
		require.Equal(t, shard >= 2, s.PeakByClass["unsharded"] > 0, "shard %d", shard)
		if shard == 0 { // each rank adds up gradients in two buffers
			chunks = s.ModelBytes - bytes*s.Parameters
			require.Positive(t, chunks)
		}
		require.Equal(t, bytes*s.Parameters+chunks, s.ModelBytes, "shard %d", shard)
	}
}

// A checkpoint of several processes has the pieces of each process in its own shard, and resumes to
// the same bits in different arrangements.
func TestReplicasWriteTheirPieces(t *testing.T) {
	skipShort(t)
	saved := filepath.Join(t.TempDir(), "saved")
	data := append([]string{"-data", sentence(t)}, shared...)
	flags := append(append([]string{"-checkpoint", saved}, data...), arrangement{2, 2, 3}.flags()...)
	summaryOfJob(t, startJob(t, 4, meeting(t, "unix"), append(flags, "-json", "-")...))
	c, err := checkpoint.Open(saved)
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, 4, c.Shards())
	require.NoError(t, c.Verify())
	alone := append([]string{"-resume", saved, "-steps", "4"}, data...)
	require.Equal(t, summaryOf(t, append(alone[:len(alone):len(alone)], arrangement{2, 1, 0}.flags()...)...).WeightsSHA256,
		summaryOf(t, append(alone, arrangement{2, 2, 2}.flags()...)...).WeightsSHA256)
}

// A budget that a step of replicas exceeds names alternatives that fit, whole gradients and gathered
// weights included, and the choice of the logits counts these as well.
func TestReplicasBudget(t *testing.T) {
	flags := []string{"-data", sentence(t), "-replicas", "2", "-ranks", "2", "-shard", "3", "-microbatches", "8"}
	status, _, _, stderr := runTiny(t, append(flags, "-plan", "gpipe", "-keep-logits", "-1", "-budget", "50KiB")...)
	requireOneLine(t, status, stderr, "the plan does not fit the budget: rank 1 needs 64832")
	fits := regexp.MustCompile(`what would fit: depth-first with at most \d in flight on a rank \(cap (\d)\) \((\d+) bytes\)`).FindStringSubmatch(stderr)
	require.NotNil(t, fits, stderr)
	s := summaryOf(t, append(flags, "-plan", "depth-first", "-cap", fits[1], "-keep-logits", "-1", "-budget", fits[2])...)
	require.Equal(t, fits[2], fmt.Sprint(*s.PlannedBytes))

	all := *summaryOf(t, append(flags, "-plan", "gpipe", "-keep-logits", "1GiB")...).PlannedBytes
	require.Less(t, *summaryOf(t, append(flags, "-plan", "gpipe", "-budget", fmt.Sprint(all-1))...).PlannedBytes, all)
}

// The summary has the number of replicas and the shard level, and each line of the memory log has the
// replica of its rank.
func TestReplicasAreLogged(t *testing.T) {
	status, folder, stdout, stderr := runTiny(t, "-data", sentence(t), "-replicas", "2", "-ranks", "2", "-shard", "3", "-json", "-")
	require.Zero(t, status, stderr)
	var s summary
	require.NoError(t, json.Unmarshal([]byte(stdout), &s))
	require.Equal(t, []int{4, 2, 3}, []int{s.Ranks, s.ReplicaCount, s.Shard})
	all := samples(t, folder)
	require.NotEmpty(t, all)
	for _, r := range all {
		require.True(t, r.Replicated)
		require.Equal(t, r.Rank/2, r.Replica)
	}
}
