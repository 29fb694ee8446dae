package hang_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/cmd/weir/internal/hang"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// small returns the ranks of a job of one group.
func small(ranks int) (*dumpGroup, []*dumpRank) {
	g := &dumpGroup{Name: "0", Description: "WORLD"}
	var all []*dumpRank
	for rank := range ranks {
		g.Ranks = append(g.Ranks, rank)
		all = append(all, &dumpRank{Rank: rank, Groups: []*dumpGroup{g}})
	}
	return g, all
}

func read(t *testing.T, ranks []*dumpRank) *flightrec.Set {
	s := &flightrec.Set{}
	for _, r := range ranks {
		if r != nil {
			require.NoError(t, s.Add(fmt.Sprintf("dump_%d.json", r.Rank), bytes.NewReader(r.JSON())))
		}
	}
	return s
}

// TestVerdicts judges small jobs.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		issue   func(g *dumpGroup, ranks []*dumpRank) // issues the pending operations, after one collective of all ranks
		blamed  []int
		certain bool
		text    string
	}{
		"nothing": {func(*dumpGroup, []*dumpRank) {}, []int{}, false, "no rank waits for another one: nothing is pending on 4 ranks"},
		"one did not issue it": {func(g *dumpGroup, ranks []*dumpRank) {
			for _, r := range ranks[1:] {
				r.Collective(g, "all_reduce", 2, 8)
			}
		}, []int{0}, true, "rank 0 stopped; 3 others wait for it, directly or through others (certain)\nrank 0 has completed all that it issued, at last broadcast 1 of WORLD (0), and has not issued all_reduce 2 of WORLD (0), which rank 1 waits in"},
		"one left no dump": {func(g *dumpGroup, ranks []*dumpRank) {
			for _, r := range ranks[1:] {
				r.Collective(g, "all_reduce", 2, 8)
			}
			ranks[0] = nil
		}, []int{0}, false, "rank 0 was not seen; 3 others wait for it, directly or through others (likely)\nrank 0 left no dump, and is not known to have issued all_reduce 2 of WORLD (0), which rank 1 waits in"},
		"another operation": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				r.Collective(g, []string{"all_reduce", "all_reduce", "all_gather", "all_reduce"}[i], 2, 8)
			}
		}, []int{2}, true, "operation 2 of WORLD (0) is all_gather of Float 8 on rank 2, and all_reduce of Float 8 on ranks 0, 1 and 3"},
		"other sizes": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				r.Collective(g, "all_reduce", 2, int64(i/2))
			}
		}, []int{0, 1, 2, 3}, false, "all_reduce of Float 0 on ranks 0 and 1, and all_reduce of Float 1 on ranks 2 and 3"},
		"sizes that may differ": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				r.Collective(g, "all_to_all", 2, int64(i))
			}
		}, []int{0, 1, 2, 3}, false, "are all in all_to_all 2 of WORLD (0), which does not end"},
		"another order": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				names := []string{"barrier", "all_reduce"}
				if i == 3 {
					names = []string{"all_reduce", "barrier"}
				}
				r.Collective(g, names[0], 2, 8)
				r.Collective(g, names[1], 3, 8)
			}
		}, []int{3}, true, "operation 2 of WORLD (0) is all_reduce of Float 8 on rank 3"},
		"a link": {func(g *dumpGroup, ranks []*dumpRank) {
			ranks[1].Transfer(g, true, 2, 2, 8)
			ranks[2].Transfer(g, false, 1, 2, 8)
			ranks[3].Transfer(g, false, 2, 2, 8)
		}, []int{1, 2}, false, "look at the link between them"},
		"the send has completed": {func(g *dumpGroup, ranks []*dumpRank) {
			ranks[1].Transfer(g, true, 2, 2, 8).Completed = 3
			ranks[2].Transfer(g, false, 1, 2, 8)
			ranks[3].Transfer(g, false, 2, 2, 8)
		}, []int{2}, true, "rank 2 is in recv from rank 1 of WORLD (0), which rank 1 has completed its send for"},
		"the send may have completed": {func(g *dumpGroup, ranks []*dumpRank) {
			ranks[1].Ring = 1
			ranks[1].Collective(g, "barrier", 2, 8).Completed = 3
			ranks[2].Transfer(g, false, 1, 2, 8)
		}, []int{1}, false, "has not issued the send that rank 2 waits for"},
		"overtaken, and not awaited": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				if op := r.Collective(g, "all_reduce", 2, 8); i != 1 {
					op.Completed = 3
				}
			}
		}, []int{1}, true, "is in all_reduce 2 of WORLD (0), which other members have completed"},
		"one dump of four": {func(_ *dumpGroup, ranks []*dumpRank) {
			clear(ranks[1:])
		}, []int{}, false, "no rank waits for another one: nothing is pending on 1 rank of 4, and 3 left no dump"},
		"transfers of two sizes": {func(g *dumpGroup, ranks []*dumpRank) {
			ranks[1].Transfer(g, true, 2, 2, 8)
			ranks[2].Transfer(g, false, 1, 2, 9)
		}, []int{1, 2}, false, "rank 1 sends 8 of BFloat16 to rank 2, which receives 9 of BFloat16"},
		"a circle": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				r.Transfer(g, true, (i+1)%4, 2, 8)
			}
		}, []int{0, 1, 2, 3}, false, "ranks 0-3 wait for each other: rank 0 is in send to rank 1, rank 1 is in send to rank 2"},
		"a receive from any rank": {func(g *dumpGroup, ranks []*dumpRank) {
			ranks[1].Transfer(g, false, -1, 2, 8)
			ranks[2].Transfer(g, true, 1, 2, 8).Completed = 3
			for _, r := range ranks[2:] {
				r.Collective(g, "all_reduce", 2, 8)
			}
		}, []int{0}, true, "rank 0 has completed all that it issued, at last broadcast 1 of WORLD (0), and has not issued all_reduce 2"},
		"nothing but a receive from any rank": {func(g *dumpGroup, ranks []*dumpRank) {
			ranks[1].Transfer(g, false, -1, 2, 8)
		}, []int{0, 2, 3}, false, "has not issued the send that rank 1 waits for"},
		"few issued it": {func(g *dumpGroup, ranks []*dumpRank) {
			ranks[1].Collective(g, "all_reduce", 2, 8)
		}, []int{0, 2, 3}, false, "has not issued all_reduce 2"},
		"a scatter, of which the root has as many tensors as members": {func(g *dumpGroup, ranks []*dumpRank) {
			for _, r := range ranks[:3] {
				r.Collective(g, "scatter", 2, 8)
			}
			ranks[0].Ops[1].Type = "Float,Float,Float,Float"
		}, []int{3}, true, "has not issued scatter 2"},
		"a broadcast that others have completed": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				if op := r.Collective(g, "broadcast", 2, 8); i != 1 {
					op.Completed = 3
				}
			}
		}, []int{1}, false, "is in broadcast 2 of WORLD (0), which other members have completed"},
		"overtaken": {func(g *dumpGroup, ranks []*dumpRank) {
			for i, r := range ranks {
				if op := r.Collective(g, "all_reduce", 2, 8); i != 1 {
					op.Completed = 3
					r.Collective(g, "all_reduce", 4, 8)
				}
			}
		}, []int{1}, true, "is in all_reduce 2 of WORLD (0), which other members have completed"},
	} {
		t.Run(name, func(t *testing.T) {
			g, ranks := small(4)
			for _, r := range ranks {
				r.Collective(g, "broadcast", 1, 8).Completed = 1
			}
			c.issue(g, ranks)
			r := hang.Dumps(read(t, ranks))
			require.Equal(t, c.blamed, r.Blamed)
			require.Equal(t, c.certain, r.Certain)
			require.Contains(t, r.Summary(), c.text)
			require.Equal(t, len(c.blamed) > 0, r.Found())
			var text bytes.Buffer
			require.NoError(t, r.Write(&text))
			require.True(t, strings.HasPrefix(text.String(), r.Summary()))
		})
	}
}

// TestNewer names a version of dumps that is newer than the known ones.
func TestNewer(t *testing.T) {
	_, ranks := small(2)
	for _, r := range ranks {
		r.Version = "2.11"
	}
	var text bytes.Buffer
	require.NoError(t, hang.Dumps(read(t, ranks)).Write(&text))
	require.Contains(t, text.String(), "dumps have version 2.11, and may say what this weir does not know")
}

// TestAnotherPlan requires that dumps that do not fit the plan are judged without it.
func TestAnotherPlan(t *testing.T) {
	g, ranks := small(4)
	ranks[0].Transfer(g, true, 3, 2, 8)
	r := hang.Dumps(read(t, ranks), planNamed(t, "1f1b", 4))
	require.False(t, r.Fit.Fits)
	require.Equal(t, []int{3}, r.Blamed)
	var text bytes.Buffer
	require.NoError(t, r.Write(&text))
	require.Contains(t, text.String(), `plan "1f1b" does not fit the dumps, which are judged without it: the transfers of rank 0 are not those of place 0 of the plan`)
}

// TestPage draws the front line of a hang at the positions of the ranks in the plan.
func TestPage(t *testing.T) {
	plan := planNamed(t, "1f1b", 4)
	m := makeJob(plan, 2, 3, false)
	r := m.ranks[5]
	m.faults = []*planted{{kind: "stopped", rank: 5, item: len(r.items) - 9}}
	require.False(t, m.run())
	report := hang.Dumps(m.dumps(t, false), plan)
	var page, svg bytes.Buffer
	require.NoError(t, report.HTML(&page))
	require.NoError(t, report.SVG(&svg))
	require.Contains(t, page.String(), svg.String())
	require.Equal(t, 1, strings.Count(page.String(), "<svg"), "the pipeline of rank 5 alone")
	require.Equal(t, 4+1, strings.Count(svg.String(), `<circle class="at"`), "a dot for each rank, and one in the legend")
	require.Contains(t, svg.String(), `r="7"><title>rank 5, `+report.Fit.Positions[5].String())

	_, ranks := small(2)
	require.ErrorIs(t, hang.Dumps(read(t, ranks)).SVG(&svg), hang.ErrNoPicture)
	require.ErrorIs(t, hang.Dumps(read(t, ranks)).HTML(&svg), hang.ErrNoPicture)
}

// TestLive judges what the ranks of a running job do.
func TestLive(t *testing.T) {
	waits := func(rank, awaited int, action string) transport.RankStatus {
		s := transport.RankStatus{Step: 9, Last: schedule.NewAction(schedule.RecvF, 2, 7), Waits: true, Since: 5 * time.Second}
		s.Rank, s.ForRank, s.Action = rank, awaited, schedule.NewAction(schedule.F, 2, 7)
		if action != "" {
			var err error
			s.For, err = schedule.ParseAction(action)
			require.NoError(t, err)
		}
		return s
	}
	runs := func(rank int) transport.RankStatus {
		s := transport.RankStatus{Step: 9, Last: schedule.NewAction(schedule.RecvF, 2, 7)}
		s.Rank, s.Action = rank, schedule.NewAction(schedule.F, 2, 7)
		return s
	}
	outside := transport.RankStatus{}
	outside.Rank = 3
	aged := func(s transport.RankStatus, age time.Duration) transport.RankStatus {
		s.Age = age
		return s
	}
	short := func(s transport.RankStatus) transport.RankStatus {
		s.Since = time.Millisecond
		return s
	}
	next := waits(0, 1, "1RECV_F0")
	next.Step = 10
	for name, c := range map[string]struct {
		ranks   []transport.RankStatus
		blamed  []int
		certain bool
		text    string
	}{
		"a wait of an earlier step": { // rank 0 could not have begun its step otherwise
			[]transport.RankStatus{short(next), aged(short(waits(1, 0, "0SEND_F3")), 700*time.Millisecond)}, []int{1}, false,
			"rank 1 waits for none; 1 other waits for it (likely)\nrank 1 (step 9) sent its last heartbeat 700ms ago: runs 2F7, has waited 1ms for 0SEND_F3 of rank 0; rank 0 has waited 1ms for it",
		},
		"a heartbeat from before the wait": {
			[]transport.RankStatus{short(waits(0, 1, "1RECV_F0")), aged(runs(1), 700*time.Millisecond)}, []int{1}, false,
			"rank 1 (step 9) sent its last heartbeat 700ms ago: runs 2F7; rank 0 has waited 1ms for it",
		},
		"a wait that may be over": {
			[]transport.RankStatus{runs(0), aged(short(waits(1, 0, "0SEND_F3")), 700*time.Millisecond)}, []int{0}, false,
			"rank 0 waits for none; 1 other waits for it (likely)\nrank 0 (step 9) runs 2F7; rank 1 has waited 1ms for it",
		},
		"a chain": {
			[]transport.RankStatus{waits(0, 1, "1RECV_F0"), waits(1, 2, "2RECV_F0"), runs(2)}, []int{2}, true,
			"rank 2 waits for none; 2 others wait for it, directly or through others (certain)\nrank 2 (step 9) runs 2F7; rank 1 has waited 5s for it",
		},
		"the end": {
			[]transport.RankStatus{waits(0, -1, ""), waits(1, -1, ""), runs(2), outside}, []int{2, 3}, true,
			"ranks 2 and 3 wait for none; 2 others wait for them, directly or through others (certain)\nrank 2 (step 9) runs 2F7; rank 1 has waited 5s for it; rank 3 (step 0) is outside of its program",
		},
		"silence": { // its wait ended long ago; otherwise it would have reported again
			[]transport.RankStatus{waits(0, 1, "1RECV_F0"), aged(waits(1, 0, "0SEND_F3"), 4*time.Second)}, []int{1}, false,
			"rank 1 waits for none; 1 other waits for it (likely)\nrank 1 (step 9) sent its last heartbeat 4s ago: runs 2F7, has waited 5s for 0SEND_F3 of rank 0; rank 0 has waited 5s for it",
		},
		"a circle":         {[]transport.RankStatus{waits(0, 1, "1SEND_B0"), waits(1, 0, "0SEND_F3")}, []int{0, 1}, true, "ranks 0 and 1 wait for each other (certain)"},
		"half of a circle": {[]transport.RankStatus{waits(0, 1, "1SEND_B0"), aged(waits(1, 0, "0SEND_F3"), time.Second), aged(runs(2), 9*time.Second)}, []int{0, 1}, false, "ranks 0 and 1 wait for each other (likely)"},
		"nothing":          {[]transport.RankStatus{runs(0), runs(1)}, []int{}, false, "no rank waits for another one"},
	} {
		r := hang.Live(c.ranks)
		require.Equal(t, c.blamed, r.Blamed, name)
		require.Equal(t, c.certain, r.Certain, name)
		require.Contains(t, r.Summary(), c.text, name)
	}
	var text bytes.Buffer
	require.NoError(t, hang.Live([]transport.RankStatus{waits(0, 1, "1RECV_F0"), runs(1)}).Write(&text))
	require.Equal(t, `rank 1 waits for none; 1 other waits for it (certain)
rank 1 (step 9) runs 2F7; rank 0 has waited 5s for it

who waits, from there outward:
  rank 0 waits for rank 1: 2F7, which needs 1RECV_F0

rank  last completed  first pending  state
1     2RECV_F7        2F7            step 9
0     2RECV_F7        2F7            step 9, has waited 5s
`, text.String())
}

// FuzzDumps judges any two dumps, with a plan and without.
func FuzzDumps(f *testing.F) {
	plan := planNamed(f, "1f1b", 2)
	m := makeJob(plan, 1, 2, false)
	m.faults = []*planted{{kind: "stopped", rank: 1, item: len(m.ranks[1].items) - 5}}
	m.run()
	f.Add(m.ranks[0].JSON(), m.ranks[1].JSON())
	m.ranks[0].Pending = true
	f.Add(m.ranks[0].Pickle(), m.ranks[1].Pickle())
	f.Add([]byte(`{"pg_config": {"0": {"ranks": "[0, 0]"}}, "entries": [{"process_group": "0", "profiling_name": "nccl:send 0->1", "p2p_seq_id": 9000000000000000000, "is_p2p": true}]}`), []byte(`{"entries": []}`))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		var s flightrec.Set
		_ = s.Add("dump_0", bytes.NewReader(one))
		_ = s.Add("dump_1", bytes.NewReader(other))
		if len(s.Dumps) == 0 {
			return
		}
		for _, r := range []*hang.Report{hang.Dumps(&s), hang.Dumps(&s, plan)} {
			require.NoError(t, r.Write(io.Discard))
			if r.Fit != nil && r.Fit.Fits {
				require.NoError(t, r.HTML(io.Discard))
			}
		}
	})
}
