package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// memPlan runs weir mem plan with a file of costs.
func memPlan(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	costs := testkit.File(t, "costs.json", `{"schema":1,"unit":"ms","scale":1,"stages":[{"f":10,"i":10,"w":10,"output":1024,"gradient":1024,"saved":18432,"freed_by_i":6144,"carry":9216}]}`)
	out, errs, status = weir("", append([]string{"mem", "plan", "--costs", costs}, args...)...)
	return status, out, errs
}

// TestMemPlan prints certificates.
func TestMemPlan(t *testing.T) {
	status, out, errs := memPlan(t, "1f1b", "--microbatches", "1000")
	require.Equal(t, good, status, errs)
	require.Contains(t, out, "1f1b: 4 ranks, 4 stages, 1,000 microbatches; sizes: exact")
	require.Contains(t, out, "0.00 %  optimal")
	require.Contains(t, out, "rank 0 at its peak: activation 3.0 KiB, saved 72.0 KiB")
	require.Contains(t, out, "stage 0 (stage0): saved for W, saved, 4 of microbatches 0 to 3")
}

// TestMemPlanWhatIf prints bytes and times.
func TestMemPlanWhatIf(t *testing.T) {
	status, out, errs := memPlan(t, "1f1b", "--microbatches", "16", "--what-if", "--json")
	require.Equal(t, good, status, errs)
	var o certificates
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	require.Len(t, o.PerRank, 4)
	best := map[int][]alternative{} // by microbatches
	for _, one := range o.WhatIf {
		if one.Bytes == 0 { // not laid out, because another alternative needs no more memory and is as fast
			require.False(t, one.Best, one.Name)
			require.True(t, slices.ContainsFunc(o.WhatIf, func(other alternative) bool {
				return other.Bytes > 0 && other.Microbatches == one.Microbatches && other.Bytes <= one.Bound && other.Makespan <= one.Makespan
			}), one.Name)
			continue
		}
		require.LessOrEqual(t, one.Bound, one.Bytes, one.Name)
		if one.Best {
			best[one.Microbatches] = append(best[one.Microbatches], one)
		}
	}
	require.Equal(t, "as it is", o.WhatIf[0].Name)
	require.Len(t, best, 3)
	for cut, all := range map[int]float64{1: 16 + 3, 2: 32 + 3, 4: 64 + 3} { // microbatches, and the time to fill the pipeline
		require.Equal(t, all*30/float64(cut), best[16*cut][0].Makespan)
	}
	for i, one := range best[16] {
		// Twice as many of half the size keep half as much, and the pipeline fills in half the time.
		half, quarter := best[32][i], best[64][i]
		require.Equal(t, one.Bytes, 2*half.Bytes, one.Name)
		require.Equal(t, one.Bytes, 4*quarter.Bytes, one.Name)
		require.LessOrEqual(t, half.Makespan, one.Makespan, one.Name)
		require.LessOrEqual(t, quarter.Makespan, half.Makespan, one.Name)
		if i > 0 {
			require.Less(t, one.Bytes, best[16][i-1].Bytes)
			require.Greater(t, one.Makespan, best[16][i-1].Makespan)
		}
	}

	status, out, errs = memPlan(t, "1f1b", "--microbatches", "16", "--what-if")
	require.Equal(t, good, status, errs)
	require.Contains(t, out, "32 microbatches of 1/2 the size, depth-first with at most 2 in flight on a rank (cap 2)")
	require.Contains(t, out, "more need at least as much memory and time as one of these")
}

// TestMemPlanBudget refuses a plan that does not fit.
func TestMemPlanBudget(t *testing.T) {
	status, out, errs := memPlan(t, "1f1b", "--memory", "50KiB")
	require.Equal(t, atFault, status)
	require.Empty(t, out)
	require.Contains(t, errs, "rank 0 needs 76800 bytes for a step, 25600 more than the 51200 that it has")
	require.Regexp(t, `what would fit, of the same tokens:\n +bytes of a rank +makespan.*\ndepth-first with at most 2 in flight on a rank \(cap 2\) +40,960 +\d`, errs)
	require.NotContains(t, errs, "\ndepth-first with at most 3", "that needs 59,392")
	status, out, errs = memPlan(t, "1f1b", "--memory", "1KiB")
	require.Equal(t, atFault, status)
	require.Empty(t, out)
	require.Contains(t, errs, "none of the alternatives fits; the smallest is")
	status, _, errs = memPlan(t, "1f1b", "--memory", "80KiB")
	require.Equal(t, good, status, errs)
}

// TestMemPlanCSV writes an instance that can be placed.
func TestMemPlanCSV(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rank1.csv")
	status, _, errs := memPlan(t, "zb-h1", "--csv", file, "--rank", "1")
	require.Equal(t, good, status, errs)
	text := []byte(testkit.Read(t, file))
	require.True(t, strings.HasPrefix(string(text), "id,lower,upper,size"), string(text[:40]))
	status, _, errs = memPlan(t, "zb-h1", "--csv", file, "--rank", "4")
	require.Equal(t, misused, status)
	require.Contains(t, errs, "ranks are 0 to 3")
}

// TestMemPlanMisused names the missing flag.
func TestMemPlanMisused(t *testing.T) {
	fails(t, misused, "give --profile, or --costs", "", "mem", "plan", "1f1b")
	fails(t, misused, "--f: a layout depends on no time", "", "mem", "plan", "1f1b", "--ranks", "2", "--profile", "../../docs/placement/profile.json", "--f", "2")
	broken := testkit.File(t, "profile.json", "{\"schema\": 7}")
	fails(t, misused, "profile.json:1:12: found 7", "", "mem", "plan", "1f1b", "--profile", broken)
}

// TestMemPlanCountsResident checks that --memory limits the sum of a step's bytes and the resident bytes.
func TestMemPlanCountsResident(t *testing.T) {
	file := testkit.File(t, "costs.json", `{"schema":1,"scale":1,"stages":[{"f":1,"saved":1024,"resident":5000}]}`)
	args := []string{"mem", "plan", "1f1b", "--ranks", "2", "--microbatches", "4", "--costs", file}
	stdout := succeeds(t, "", args...)
	require.Contains(t, stdout, "rank  step   resident  total  at once\n0     2,048  5,000     7,048  7,048\n1     1,024  5,000     6,024  6,024\n")
	_, stderr, status := weir("", append(args, "--memory", "6100")...)
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "rank 0 needs 2048 bytes for a step and has 5000 resident, 948 more than the 6100 that it has")
	require.Regexp(t, `at most 1 in flight on a rank \(cap 1\) +6,024 `, stderr)
	require.NotContains(t, stderr, "rank 1 needs")
	succeeds(t, "", append(args, "--memory", "7048")...)
	fails(t, atFault, "none of the alternatives fits", "", append(args, "--memory", "5100")...)
}

// --shapes stores one class per microbatch, so it refuses a step of more than 2^23 microbatches.
func TestMemPlanShapesOfVeryMany(t *testing.T) {
	_, stderr, status := weir("", "mem", "plan", "depth-first", "--profile", "../../docs/placement/profile.json", "--microbatches", "268435456", "--shapes", "0")
	require.Equal(t, misused, status)
	require.Equal(t, "weir: --shapes for a step of 268435456 microbatches: at most 8388608 are allowed; give fewer microbatches, or leave out --shapes and plan for any shape\n", stderr)
}

// Gradients count from the first B or W of their stage. The rank has stages 0 and 1: stage 1 makes its gradients
// when both microbatches are saved in both stages, and stage 0 makes its gradients after the last W of stage 1.
func TestMemPlanCountsGradientsFromTheirFirstBackward(t *testing.T) {
	file := testkit.File(t, "costs.json", `{"schema":1,"scale":1,"stages":[{"f":1,"i":1,"w":1,"saved":100,"resident":1000,"gradients":5},{"f":1,"i":1,"w":1,"saved":100,"gradients":70}]}`)
	plan := testkit.File(t, "plan.csv", "0F0,0F1,1F0,1I0,1F1,1I1,1W0,1W1,0I0,0W0,0I1,0W1\n")
	out := decoded[certificates](t, good, "", "mem", "plan", plan, "--costs", file, "--json")
	require.Equal(t, int64(400), out.PerRank[0].Bound)
	require.Equal(t, int64(1475), out.PerRank[0].Total)
	require.Equal(t, int64(1470), out.PerRank[0].AtOnce) // in W of stage 1, with its gradients
}

// The profile determines which stages compute on copies of their weights; --quantize
// determines only when the copies are made.
func TestMemPlanQuantizesWhatTemplatesSay(t *testing.T) {
	const plain = "../../docs/placement/profile.json"
	text := testkit.Read(t, plain)
	copies := strings.Replace(text, `    {}
  ],`, `    {"quantizes":true}
  ],`, 1)
	copies = strings.Replace(copies, `{"name":"hidden","bytes":4194304,"class":"actgrad"}
          ],`, `{"name":"hidden","bytes":4194304,"class":"actgrad"},
            {"name":"copy","bytes":1048576,"class":"fp8"},
            {"name":"turned","bytes":1048576,"class":"fp8"}
          ],
          "quantize": {"events":["a3","a4"],"out":["3","4"],"forward":1},`, 1)
	file := testkit.File(t, "copies.json", copies)
	heights := map[string]int64{}
	for _, when := range []string{"", "before-use", "at-start"} {
		args := []string{"mem", "plan", "1f1b", "--ranks", "2", "--microbatches", "4", "--profile", file, "--json"}
		if when != "" {
			args = append(args, "--quantize", when)
		}
		stdout := succeeds(t, "", args...)
		var out struct {
			PerRank []struct{ Height int64 } `json:"per_rank"`
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &out))
		heights[when] = out.PerRank[1].Height
	}
	require.Equal(t, heights["before-use"], heights["at-start"])
	require.Equal(t, heights["before-use"], heights[""])
	without := succeeds(t, "", "mem", "plan", "1f1b", "--ranks", "2", "--microbatches", "4", "--profile", plain, "--json")
	var out struct {
		PerRank []struct{ Height int64 } `json:"per_rank"`
	}
	require.NoError(t, json.Unmarshal([]byte(without), &out))
	require.Equal(t, out.PerRank[1].Height+2<<20, heights[""])

	fails(t, misused, "--quantize: no stage of "+plain+" computes on copies of its weights", "", "mem", "plan", "1f1b", "--ranks", "2", "--profile", plain, "--quantize", "at-start")
}

// The error does not mention a profile if the costs have no copies of weights.
func TestMemPlanQuantizesWhatCostsSay(t *testing.T) {
	for costs, want := range map[string]string{
		`{"f":1,"saved":64}`: "--quantize: the costs have no copies of weights: give a stage forward_weights and backward_weights in bytes",
		`{"f":1,"saved":64,"forward_weights":32},{"f":1,"saved":64}`: "",
	} {
		file := testkit.File(t, "costs.json", `{"schema":1,"scale":1,"stages":[`+costs+`]}`)
		_, stderr, status := weir("", "mem", "plan", "1f1b", "--ranks", "2", "--costs", file, "--quantize", "at-start")
		require.Equal(t, want == "", status == 0, stderr)
		require.Contains(t, stderr, want)
	}
}
