package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// replicaCosts has a stage that takes 2 ms in each part, with weights of 64 MiB, gradients of 128 MiB,
// and optimizer state of 384 MiB.
const replicaCosts = `{"schema": 1, "unit": "us", "scale": 1000, "stages": [
  {"f": 2000000, "i": 2000000, "w": 2000000, "output": 1048576, "gradient": 1048576, "saved": 67108864, "freed_by_i": 16777216,
   "weights": 67108864, "gradients": 134217728, "optimizer": 402653184}]}`

func TestReplicas(t *testing.T) {
	costs := filepath.Join(t.TempDir(), "costs.json")
	require.NoError(t, os.WriteFile(costs, []byte(replicaCosts), 0o600))
	simulated := func(flags string) *simulated {
		stdout := succeeds(t, "", append(strings.Fields("sim interleaved --ranks 4 --stages 16 --microbatches 16 --json --replica-rate 40GB/s --costs "+costs), strings.Fields(flags)...)...)
		s := &simulated{}
		require.NoError(t, json.Unmarshal([]byte(stdout), s))
		return s
	}
	one := simulated("")
	require.Zero(t, one.Step)
	require.Nil(t, one.PerRank[0].Exchanged)
	resident := []int64{one.PerRank[0].PeakByClass["resident"]}
	for level, want := range []struct{ unshards, gathered, reduced int64 }{
		{0, 0, 2 * 4 * 96 << 20}, {0, 4 * 48 << 20, 4 * 96 << 20}, {0, 4 * 48 << 20, 4 * 96 << 20}, {20, 20 * 48 << 20, 4 * 96 << 20},
	} {
		s := simulated("--replicas 4 --shard " + string(rune('0'+level)))
		r := s.PerRank[0].Exchanged
		require.Equal(t, exchanged{want.unshards, want.gathered, r.GatherWait, want.reduced, r.Reducing, r.ReduceWait}, *r)
		require.Positive(t, r.Reducing)
		require.Less(t, r.ReduceWait, r.Reducing, "some of it is hidden")
		require.Greater(t, s.Step, s.Makespan)
		resident = append(resident, s.PerRank[0].PeakByClass["resident"])
	}
	const mib = 4 << 20 // of four stages
	require.Equal(t, []int64{576 * mib, 576 * mib, (64 + 128 + 96) * mib, (64 + 32 + 96) * mib, (16 + 32 + 96) * mib}, resident)
	require.Greater(t, simulated("--replicas 4 --shard 3 --gathered 1").PerRank[0].Exchanged.Unshards, int64(20))

	stdout := succeeds(t, "", strings.Fields("sim interleaved --ranks 4 --stages 16 --microbatches 16 --replicas 4 --shard 3 --costs "+costs)...)
	require.Contains(t, stdout, "4 replicas, shard level 3: step ")
	stdout = succeeds(t, "", strings.Fields("plan 1f1b --ranks 1 --microbatches 2 --replicas 2 --shard 2")...)
	require.Contains(t, stdout, "0ZERO_GRAD 0B0~psr\nx 1 +0: 0F1~po 0B1~psr 0REDUCE_GRAD 0WAIT_REDUCE")
	stdout = succeeds(t, "", strings.Fields("check zb-v --replicas 2 --shard 3")...)
	require.Contains(t, stdout, "; replicas may share microbatches unevenly")
	stdout = succeeds(t, "", strings.Fields("check dualpipe --replicas 2 --ranks 4 --microbatches 2")...)
	require.Contains(t, stdout, "; with 1 microbatch ranks reduce in another order: give replicas equal numbers")
	stdout = succeeds(t, "", strings.Fields("mem plan 1f1b --replicas 4 --shard 3 --costs "+costs)...)
	require.Contains(t, stdout, "whole gradients, unsharded")
	require.Contains(t, stdout, "gathered weights, unsharded")
	stdout = succeeds(t, "", strings.Fields("choose --ranks 2 --stages 8 --microbatches 8 --replicas 4 --shard 3 --replica-rate 40GB/s --costs "+costs)...)
	require.Contains(t, stdout, "gathered 1")
	require.Contains(t, stdout, "step, us")

	memory := func(costs, flags string) string {
		file := filepath.Join(t.TempDir(), "costs.json")
		require.NoError(t, os.WriteFile(file, []byte(costs), 0o600))
		return succeeds(t, "", strings.Fields("mem plan zb-h1 --ranks 2 --microbatches 4 --costs "+file+flags)...)
	}
	for level := range 4 { // by the file of costs and by flags
		shared := fmt.Sprintf(`"replicas": 4, "shard": %d, "stages"`, level)
		require.Equal(t, memory(replicaCosts, fmt.Sprint(" --replicas 4 --shard ", level)), memory(strings.Replace(replicaCosts, `"stages"`, shared, 1), ""))
	}
	for flag, text := range map[string]string{"--lengths none": "per_token", "--replica-rate 1GB/s": "--replica-rate counts bytes"} {
		fails(t, misused, text, "", strings.Fields("choose --ranks 2 --microbatches 8 "+flag)...)
	}

	const model = "-- --num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 64 --vocab-size 1024 --bf16"
	weights := func(flags string) int64 {
		stdout := succeeds(t, "", append(strings.Fields("fit --json --no-reserved --ranks 2 --schedule interleaved --stages 8 --microbatches 8 "+flags), strings.Fields(model)...)...)
		var out struct {
			Ranks []struct{ Weights int64 } `json:"per_rank"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &out))
		return out.Ranks[1].Weights
	}
	require.Equal(t, weights("--data 8 --zero 3"), weights("--replicas 8 --shard 3"), "the old names")
	require.Less(t, weights("--replicas 8 --shard 3"), weights("--replicas 8 --shard 2"))
	layer := weights("--replicas 8 --shard 3 --gathered 3") - weights("--replicas 8 --shard 3 --gathered 2")
	require.EqualValues(t, (12*1024*1024+13*1024)*2, layer, "a layer in bfloat16")

	for args, want := range map[string]string{
		"plan 1f1b --shard 1":                         "--shard 1: one replica shares nothing: give --replicas 2 or more",
		"plan 1f1b --replicas -1":                     "--replicas -1: give 1 to 16384",
		"sim 1f1b --replicas 2 --shard 4":             "--shard 4: give a level from 0 to 3; --gathered is the number of stages",
		"sim 1f1b --replicas 2 --gathered 1":          "--gathered 1: give 1 or more, with --shard 3",
		"sim 1f1b --replica-rate 1GB/s":               "--replica-rate counts bytes: give --costs with the bytes of each stage",
		"check testdata/1f1b.csv --replicas 2":        "--replicas is for a schedule given by name",
		"choose --ranks 2 --microbatches 4 --shard 1": "--shard 1: one replica shares nothing",
		"mem plan 1f1b --ranks 2 --profile ../../docs/placement/profile.json --replicas 2 --shard 2": "the plan has ZERO_GRAD, but no stage of the profile has zero_grad or gather",
		"plan dualpipe --replicas 2 --shard 3 --gathered 1":                                          "one stage is gathered at once, and plan \"dualpipe\" joins pairs of two",
	} {
		_, stderr, status := weir("", strings.Fields(args)...)
		require.NotZero(t, status, args)
		require.Contains(t, stderr, want)
	}
}
