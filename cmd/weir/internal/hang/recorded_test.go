package hang_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/cmd/weir/internal/hang"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestRecordedJobs judges dumps of jobs of four ranks on gloo, which PyTorch 2.15.0 wrote (tests/hang/jobs.py).
// FlightRecorderHook wrote most of them, and gloo itself wrote collective-sleeps and halves-sleep. In other-tags,
// two ranks have different tags for the same transfer.
func TestRecordedJobs(t *testing.T) {
	plan := func(rule schedule.Rule, ranks int) *schedule.Plan {
		base, err := rule(schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: 8})
		require.NoError(t, err)
		base.Runtime = schedule.PyTorch
		with, err := lower.Transfers(base, 1)
		require.NoError(t, err)
		return with
	}
	onefoneb, gpipe, halves := plan(schedule.OneFOneB, 4), plan(schedule.GPipe, 4), plan(schedule.OneFOneB, 2)
	for name, c := range map[string]struct {
		blamed  []int
		certain bool
		text    string
		place   string // of the blamed rank in the plan
		plan    *schedule.Plan
	}{
		"first-step-sleeps":         {[]int{2}, true, "has not issued the send that rank 1 waits for", "after 2RECV_F2, before 2F2 or 2SEND_F2", onefoneb},
		"first-step-sleeps-healthy": {nil, false, "nothing is pending on 4 ranks", "", nil},
		"rank-dies":                 {[]int{3}, false, "rank 3 left no dump", "", nil},
		"send-skipped":              {[]int{1, 2}, false, "one of them issues its transfers in the wrong order", "", nil},
		"mixed-sleeps":              {[]int{2}, true, "has not issued all_reduce", "before the end of the step", onefoneb},
		"groups-sleep":              {[]int{3}, true, "has not issued the send that rank 1 waits for", "", nil},
		"active-alone":              {[]int{1}, false, "left a dump without a pending operation, and has not issued", "", nil},
		"batched-sleeps":            {[]int{2}, false, "has not issued the send that rank 1 waits for", "after 2RECV_F3, before 2F3 or 2SEND_F3", onefoneb},
		"batched-sleeps-healthy":    {nil, false, "nothing is pending on 4 ranks", "", nil},
		"batched-short":             {[]int{1, 2}, false, "rank 1 is in send to rank 2, rank 2 is in recv from rank 1", "", nil},
		"collective-sleeps":         {[]int{1}, true, "has not issued all_reduce 4 of default_pg (0)", "", nil},
		"halves-sleep":              {[]int{3}, true, "has not issued all_reduce 3 of default_pg (0)", "", nil},
		"halves-sleep-healthy":      {nil, false, "nothing is pending on 4 ranks", "", nil},
		"another-collective":        {[]int{2}, true, "operation 3 of default_pg (0) is all_reduce of Float 8 on ranks 0, 1 and 3, and broadcast of Float 8 on rank 2", "", nil},
		"another-size":              {[]int{3}, true, "is all_reduce of Float 1048576 on rank 3, and all_reduce of Float 8 on ranks 0 and 1", "", nil},
		"another-order":             {[]int{2}, true, "on rank 2", "", nil},
		"wrong-side":                {[]int{2, 3}, false, "rank 2 is in recv from rank 3, rank 3 is in recv from rank 2", "", nil},
		"any-source":                {[]int{0}, true, "has not issued barrier", "", nil},
		"interleaved-sleeps":        {[]int{2, 3}, false, "wait for each other", "", nil},
		"behind-sends":              {[]int{3}, false, "has not issued the recv that rank 2 sends to", "after 3RECV_F2, before 3F2 or 3RECV_F3", gpipe},
		"active-groups":             {[]int{2}, false, "left a dump without a pending operation, and has not issued", "before", halves},
		"gloo-times-out":            {[]int{1}, false, "has not issued all_reduce 4", "", nil},
		"short-history":             {[]int{2}, false, "has not issued the send that rank", "after 2RECV_F", onefoneb},
		"other-tags":                {[]int{0, 1}, false, "look at the link between them, and at the tags of the transfer", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := flightrec.Read("testdata/recorded/" + name + ".tar.gz")
			require.NoError(t, err)
			reports := []*hang.Report{hang.Dumps(set)}
			if c.place != "" {
				reports = append(reports, hang.Dumps(set, c.plan))
				require.True(t, reports[1].Fit.Fits, reports[1].Fit.Why)
				require.Contains(t, reports[1].Fit.Positions[c.blamed[0]].String(), c.place)
			}
			for _, r := range reports {
				require.Equal(t, append([]int{}, c.blamed...), r.Blamed)
				require.Equal(t, c.certain, r.Certain)
				require.Contains(t, r.Summary(), c.text)
				require.Equal(t, c.blamed != nil, r.Found())
			}
		})
	}
}

// TestBatches judges batches of transfers that are numbered as in PyTorch 2.4, and as in 2.6 to 2.10. The dumps are
// modeled on the source of ProcessGroupNCCL.cpp.
func TestBatches(t *testing.T) {
	for _, version := range []string{"2.4", "2.6"} {
		for _, pending := range []bool{false, true} {
			for name, c := range map[string]struct {
				end     func(g *dumpGroup, ranks []*dumpRank) // what follows a step that ended
				blamed  []int
				certain bool // with all of the history
				text    string
			}{
				"healthy": {func(*dumpGroup, []*dumpRank) {}, []int{}, false, "nothing is pending"},
				"one sends nothing": {func(g *dumpGroup, ranks []*dumpRank) {
					ranks[3].Transfer(g, false, 2, 20, 8)
					ranks[3].Close()
				}, []int{2}, true, "has not issued the send that rank 3 waits for"},
				"two parts wait for one rank": {func(g *dumpGroup, ranks []*dumpRank) {
					ranks[3].Transfer(g, true, 2, 20, 8)
					ranks[3].Transfer(g, false, 2, 20, 8)
					ranks[3].Close()
				}, []int{2}, true, "has not issued the "},
				"a batch waits for the part without another end": {func(g *dumpGroup, ranks []*dumpRank) {
					ranks[2].Transfer(g, false, 1, 20, 8)
					ranks[2].Transfer(g, false, 3, 20, 8)
					ranks[2].Close()
					ranks[1].Transfer(g, true, 2, 20, 8)
					ranks[1].Close()
				}, []int{3}, true, "has not issued the send that rank 2 waits for"},
				"a batch holds up those behind it": {func(g *dumpGroup, ranks []*dumpRank) {
					ranks[2].Transfer(g, true, 3, 20, 8)
					ranks[2].Close()
					ranks[2].Transfer(g, false, 1, 21, 8)
					ranks[2].Close()
					ranks[1].Transfer(g, true, 2, 20, 8)
					ranks[1].Close()
				}, []int{3}, false, "has not issued the recv that rank 2 sends to"},
				"collectives are counted without batches": {func(g *dumpGroup, ranks []*dumpRank) {
					for _, r := range ranks[:3] {
						r.Collective(g, "all_reduce", 20, 8)
					}
				}, []int{3}, true, "has not issued all_reduce 2 of WORLD (0)"},
			} {
				t.Run(fmt.Sprintf("%s, pending %v, %s", version, pending, name), func(t *testing.T) {
					g, ranks := small(4)
					for _, r := range ranks {
						r.Batches, r.Pending = version, pending
						r.Collective(g, "broadcast", 1, 8).Completed = 1
					}
					batch := func(rank int, peers ...int) { // a number is a receive from its complement
						for _, peer := range peers {
							ranks[rank].Transfer(g, peer >= 0, max(peer, ^peer), 2, 8).Completed = 3
						}
						ranks[rank].Close()
					}
					for range 2 {
						batch(0, 1)
						batch(1, ^0)
						batch(1, 2, ^2)
						batch(2, ^1, 1)
						batch(2, 3)
						batch(3, ^2)
					}
					c.end(g, ranks)
					r := hang.Dumps(read(t, ranks))
					if pending && version == "2.4" && name == "collectives are counted without batches" {
						require.False(t, r.Certain) // the batches before the dump are not counted
						return
					}
					require.Equal(t, c.blamed, r.Blamed)
					require.Equal(t, c.certain && !pending, r.Certain)
					require.Contains(t, r.Summary(), c.text)
					var text bytes.Buffer
					require.NoError(t, r.Write(&text))
					require.NotContains(t, text.String(), "for ranks 2 and 2")
					require.Equal(t, pending, strings.Contains(text.String(), "some transfers were taken as completed"))
				})
			}
		}
	}
}

// TestFirstBatchIsCutOff judges a dump that begins after the parts of a batch. The operation that closes the batch
// must not count as a collective, and nothing shows which ranks it waits for.
func TestFirstBatchIsCutOff(t *testing.T) {
	for _, completed := range []int64{0, 3} {
		g, ranks := small(3)
		for _, r := range ranks {
			r.Batches = "2.6"
			r.Collective(g, "all_reduce", 1, 8)
		}
		for rank, peer := range []int{1, 0} {
			ranks[rank].Ops[0].Completed = completed
			ranks[rank].Transfer(g, rank == 1, peer, 2, 8).Completed = completed
			ranks[rank].Close()
		}
		ranks[0].Ring = 1
		r := hang.Dumps(read(t, ranks))
		for _, f := range r.Findings {
			require.False(t, f.Mismatch, f.Text)
		}
		for _, w := range r.Waits {
			require.NotContains(t, w.In, "coalesced")
			require.False(t, w.Rank == 0 && w.Certain)
		}
		if completed == 0 {
			require.Equal(t, "batch (its operations are not in the dump) of WORLD (0)", r.States[0].First)
		} else {
			require.Equal(t, hang.State{Rank: 0}, r.States[0])
		}
	}
}

// TestCoalescedCollectives judges batches of collectives, modeled on ProcessGroupNCCL.cpp. Up to PyTorch 2.6 only the
// operation that closes the batch is recorded. Since 2.7 each collective is recorded, under the same number. Since 2.9
// the closing operation may have the name of the requested operation.
func TestCoalescedCollectives(t *testing.T) {
	for _, c := range []struct{ name, closing string }{{"", "coalesced"}, {"_broadcast_oop", "coalesced"}, {"_broadcast_oop", "ALLGATHER_coalesced"}} {
		for _, issue := range []int{3, 4} {
			g, ranks := small(4)
			for i, r := range ranks {
				r.Collective(g, "all_reduce", 1, 8).Completed = 1
				if i == issue {
					continue
				}
				n := r.count(g)
				n[0]++
				closing := &dumpOp{Group: g, Name: "nccl:" + c.closing, collective: n[0], batch: n[1]}
				for size := int64(10); c.name != "" && size < 50; size += 10 {
					n[2]++
					r.add(&dumpOp{Group: g, Name: "nccl:" + c.name, Sizes: []int64{size}, Type: "BFloat16", collective: n[0], batch: n[1], op: n[2], closing: closing})
				}
				closing.op = n[2]
				r.add(closing)
			}
			r := hang.Dumps(read(t, ranks))
			require.Empty(t, r.Findings)
			if issue == 3 {
				require.Equal(t, []int{3}, r.Blamed)
				require.True(t, r.Certain)
			} else {
				require.Equal(t, []int{0, 1, 2, 3}, r.Blamed)
				require.False(t, r.Certain)
				require.Contains(t, r.Summary(), "which does not end")
			}
		}
	}
}

// TestPublicDumps blames exactly the ranks in which faults were injected, in the four sets of
// NVIDIA/nvidia-resiliency-ext, tests/attribution/unit/fr_traces. They are read from
// $WEIR_FLIGHT_DUMPS.
func TestPublicDumps(t *testing.T) {
	root := os.Getenv("WEIR_FLIGHT_DUMPS")
	if root == "" {
		t.Skip("set WEIR_FLIGHT_DUMPS to a copy of fr_traces of NVIDIA/nvidia-resiliency-ext")
	}
	for name, want := range map[string][]int{"gpu_error_1st": {12, 14}, "gpu_error_2nd": {9, 14}, "lock_gil_1st": {9, 14}, "lock_gil_2nd": {10, 15}} {
		t.Run(name, func(t *testing.T) {
			set, err := flightrec.Read(filepath.Join(root, name))
			require.NoError(t, err)
			require.Len(t, set.Dumps, 16)
			r := hang.Dumps(set)
			require.Equal(t, want, r.Blamed)
			require.Len(t, r.Behind, 14)
			for _, x := range r.Reasons {
				t.Log(x)
			}
			for _, x := range r.Findings {
				t.Log(x.Text)
			}
		})
	}
}
