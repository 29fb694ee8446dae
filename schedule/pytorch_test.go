package schedule_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// The cases are those of PyTorch's test/distributed/pipelining/test_schedule.py, class
// TestScheduleLowering, in the letters of today: where a case there runs B and then W, B
// stands for the input gradient alone and is I here. What a case leaves out of a
// schedule is put back, so that it is a plan. Two cases of pairs are ours.

// actions returns the actions of a list: words, pairs such as (1F1;2B0), and - for none.
func actions(t require.TestingT, list string) (parsed []schedule.Action) {
	for word := range strings.FieldsSeq(list) {
		if word == "-" {
			parsed = append(parsed, 0)
			continue
		}
		pair := strings.Split(strings.Trim(word, "()"), ";")
		for i, text := range pair {
			a, err := schedule.ParseAction(text)
			require.NoError(t, err)
			parsed = append(parsed, a.WithJoin(i+1 < len(pair)))
		}
	}
	return parsed
}

// planOf returns the plan of these lists, one for each rank.
func planOf(t require.TestingT, placement []int, microbatches int, programs ...string) *schedule.Plan {
	p := &schedule.Plan{Name: "lists", Placement: schedule.Placement{Ranks: len(programs), Rank: placement}, Microbatches: microbatches}
	for _, list := range programs {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: actions(t, list), Repeat: 1}})
	}
	return p
}

func TestLowerPyTorch(t *testing.T) {
	one, two := []int{0}, []int{0, 0}
	for _, test := range []struct {
		name         string
		placement    []int
		microbatches int
		passes       schedule.PyTorch
		compute      []string
		want         []string
	}{
		{"test_unshard_reshard 0", one, 2, schedule.PyTorch{Active: 3},
			[]string{"0F0 0F1 0B0 0B1"},
			[]string{"0UNSHARD 0F0 0F1 0B0 0B1 0RESHARD"}},
		{"test_unshard_reshard 1", two, 2, schedule.PyTorch{Active: 3},
			[]string{"0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1"},
			[]string{"0UNSHARD 1UNSHARD 0F0 0F1 1F0 1F1 1B0 1B1 1RESHARD 0B0 0B1 0RESHARD"}},
		{"test_reduce_grad 0", one, 2, schedule.PyTorch{Reduce: true},
			[]string{"0F0 0F1 0B0 0B1"},
			[]string{"0F0 0F1 0B0 0B1 0REDUCE_GRAD"}},
		{"test_reduce_grad 1", two, 2, schedule.PyTorch{Reduce: true},
			[]string{"0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1"},
			[]string{"0F0 0F1 1F0 1F1 1B0 1B1 1REDUCE_GRAD 0B0 0B1 0REDUCE_GRAD"}},
		{"test_merge_bw", one, 3, schedule.PyTorch{Merge: true},
			[]string{"0F0 0F1 0F2 0I0 0I1 0W0 0I2 0W2 0W1"},
			[]string{"0F0 0F1 0F2 0I0 0I1 0W0 0B2 0W1"}},
		{"test_defer_recv_ops simple_2_rank_2_stage_no_overlap", []int{0, 1}, 2, schedule.PyTorch{Defer: true},
			[]string{"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"},
			[]string{"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1", "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"}},
		{"test_defer_recv_ops v_2_rank_4_stage_no_overlap", []int{0, 1, 1, 0}, 2, schedule.PyTorch{Defer: true},
			[]string{"0F0 0F1 3F0 3I0 3F1 3I1 0I0 3W0 0I1 3W1 0W0 0W1", "1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1 2W0 2W1 1W0 1W1"},
			[]string{
				"0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3I0 3SEND_B0 3RECV_F1 3F1 3I1 3SEND_B1 0RECV_B0 0I0 3W0 0RECV_B1 0I1 3W1 0W0 0W1",
				"1RECV_F0 1F0 2F0 2SEND_F0 1RECV_F1 1F1 2F1 2SEND_F1 2RECV_B0 2I0 1I0 1SEND_B0 2RECV_B1 2I1 1I1 1SEND_B1 2W0 2W1 1W0 1W1"}},
		{"a pair is gathered as one, beyond the stages that are kept", two, 2, schedule.PyTorch{Active: 1},
			[]string{"0F0 1F0 (1B0;0F1) 0B0 1F1 1B1 0B1"},
			[]string{"0UNSHARD 0F0 0RESHARD 1UNSHARD 1F0 0UNSHARD (1B0;0F1) 1RESHARD 0B0 0RESHARD 1UNSHARD 1F1 1B1 1RESHARD 0UNSHARD 0B1 0RESHARD"}},
		{"a pair stands behind what either of it takes", []int{0, 1}, 2, schedule.PyTorch{},
			[]string{"0F0 0F1 0I0 (0W0;0I1) 0W1", "1F0 (1F1;1I0) 1W0 1I1 1W1"},
			[]string{"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0I0 0RECV_B1 (0W0;0I1) 0W1", "1RECV_F0 1F0 1RECV_F1 (1F1;1I0) 1SEND_B0 1W0 1I1 1SEND_B1 1W1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := planOf(t, test.placement, test.microbatches, test.compute...)
			got, err := schedule.LowerPyTorch(p, test.passes)
			require.NoError(t, err)
			require.NoError(t, schedule.Check(got))
			require.Equal(t, lists(planOf(t, test.placement, test.microbatches, test.want...)), lists(got))
		})
	}
}

// The pass alone, on lists with idle cells (-), which no plan has.
func TestSendReceive(t *testing.T) {
	for _, test := range []struct {
		name          string
		placement     schedule.Placement
		compute, want []string
		ticks         int
	}{
		{"simple_2_rank_2_stage", schedule.Looped(2, 2),
			[]string{"0F0 0F1 - 0B0 - 0B1", "- 1F0 1B0 1F1 1B1 -"},
			[]string{"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1", "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1"}, 11},
		{"v_2_rank_4_stage", schedule.Wave(2, 4),
			[]string{"0F0 0F1 - 3F0 3I0 3F1 3I1 0I0 3W0 0I1 3W1 0W0 0W1", "- 1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1 2W0 2W1 1W0 1W1"},
			[]string{
				"0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3I0 3SEND_B0 3RECV_F1 3F1 3I1 3SEND_B1 0RECV_B0 0I0 3W0 0RECV_B1 0I1 3W1 0W0 0W1",
				"1RECV_F0 1RECV_F1 1F0 2F0 2SEND_F0 1F1 2RECV_B0 2F1 2SEND_F1 2I0 2RECV_B1 1I0 1SEND_B0 2I1 1I1 1SEND_B1 2W0 2W1 1W0 1W1"}, 24},
	} {
		t.Run(test.name, func(t *testing.T) {
			var compute [][]schedule.Action
			for _, list := range test.compute {
				compute = append(compute, actions(t, list))
			}
			want := lists(planOf(t, test.placement.Rank, 2, test.want...))
			require.Equal(t, want, schedule.SendReceive(test.placement, 2, compute))
			require.Equal(t, test.ticks, pyTorchTicks(t, planOf(t, test.placement.Rank, 2, test.want...)))
		})
	}
}

// The pass alone, on lists that no plan has.
func TestDeferReceives(t *testing.T) {
	pipe, wave := schedule.Looped(2, 2), schedule.Wave(2, 4)
	for _, test := range []struct {
		name       string
		placement  schedule.Placement
		rank       int
		list, want string
	}{
		{"simple_2_rank_2_stage_iw_split, the lower rank receives before it sends", pipe, 0,
			"0RECV_B0 0F0 0SEND_F0 0F1 0SEND_F1 0I0 0W0 0RECV_B1 0I1 0W1",
			"0F0 0RECV_B0 0SEND_F0 0F1 0SEND_F1 0I0 0W0 0RECV_B1 0I1 0W1"},
		{"simple_2_rank_2_stage_iw_split, W takes nothing", pipe, 1,
			"1RECV_F0 1RECV_F1 1F0 1I0 1SEND_B0 1W0 1F1 1I1 1SEND_B1 1W1",
			"1RECV_F0 1F0 1I0 1SEND_B0 1W0 1RECV_F1 1F1 1I1 1SEND_B1 1W1"},
		{"v_2_rank_4_stage_overlap_f_b, both of a pair", wave, 1,
			"1RECV_F0 1RECV_F1 2RECV_B0 1F0 2F0 2SEND_F0 (1F1;2B0) 2W0 1B0 1SEND_B0 1W0",
			"1RECV_F0 1F0 2F0 2SEND_F0 1RECV_F1 2RECV_B0 (1F1;2B0) 2W0 1B0 1SEND_B0 1W0"},
		{"v_2_rank_4_stage_overlap_f_b, nothing to move", wave, 0,
			"0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 3RECV_F1 3F1 3B1 3SEND_B1 0RECV_B0 0B0 3W0 0RECV_B1 0B1 3W1 0W0 0W1",
			"0F0 0SEND_F0 0F1 0SEND_F1 3RECV_F0 3F0 3B0 3SEND_B0 3RECV_F1 3F1 3B1 3SEND_B1 0RECV_B0 0B0 3W0 0RECV_B1 0B1 3W1 0W0 0W1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, actions(t, test.want), schedule.DeferReceives(actions(t, test.list), test.placement, test.rank))
		})
	}
}

// The artifact zb1p_2rank_2stagep_comms.csv, of which test_csv says that it takes 113
// ticks, in the letters of today.
func TestZB1PArtifact(t *testing.T) {
	p, err := schedule.ZB1P(schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 8})
	require.NoError(t, err)
	got, err := schedule.LowerPyTorch(p, schedule.PyTorch{Merge: true})
	require.NoError(t, err)
	want := planOf(t, p.Placement.Rank, 8,
		"0F0 0SEND_F0 2RECV_F0 0F1 0SEND_F1 2RECV_F1 2F0 2SEND_F0 2F1 2SEND_F1 2RECV_B0 2B0 2SEND_B0 0F2 0SEND_F2 2RECV_B1 2B1 "+
			"2SEND_B1 0F3 0SEND_F3 2RECV_F2 0RECV_B0 0B0 2F2 2SEND_F2 2RECV_F3 0RECV_B1 0B1 2F3 2SEND_F3 2RECV_B2 2B2 2SEND_B2 0F4 "+
			"0SEND_F4 2RECV_B3 2B3 2SEND_B3 0F5 0SEND_F5 2RECV_F4 0RECV_B2 0B2 2F4 2SEND_F4 2RECV_F5 0RECV_B3 0B3 2F5 2SEND_F5 "+
			"2RECV_B4 2B4 2SEND_B4 0F6 0SEND_F6 2RECV_B5 2B5 2SEND_B5 0F7 0SEND_F7 2RECV_F6 0RECV_B4 0B4 2F6 2SEND_F6 2RECV_F7 "+
			"0RECV_B5 0B5 2F7 2SEND_F7 2RECV_B6 2B6 2SEND_B6 2RECV_B7 2B7 2SEND_B7 0RECV_B6 0B6 0RECV_B7 0B7",
		"1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 3RECV_F0 3F0 3RECV_F1 3I0 3SEND_B0 1RECV_B0 3F1 1RECV_F2 3I1 3SEND_B1 "+
			"1RECV_B1 3W0 1RECV_F3 1F2 1SEND_F2 1I0 1SEND_B0 3W1 3RECV_F2 1F3 1SEND_F3 1I1 1SEND_B1 1W0 3RECV_F3 3F2 3I2 3SEND_B2 "+
			"1RECV_B2 1W1 1RECV_F4 3F3 3I3 3SEND_B3 1RECV_B3 3W2 1RECV_F5 1F4 1SEND_F4 1I2 1SEND_B2 3W3 3RECV_F4 1F5 1SEND_F5 1I3 "+
			"1SEND_B3 1W2 3RECV_F5 3F4 3I4 3SEND_B4 1RECV_B4 1W3 1RECV_F6 3F5 3I5 3SEND_B5 1RECV_B5 3W4 1RECV_F7 1F6 1SEND_F6 1I4 "+
			"1SEND_B4 3W5 3RECV_F6 1F7 1SEND_F7 1I5 1SEND_B5 1W4 3RECV_F7 3F6 3I6 3SEND_B6 1RECV_B6 1W5 3F7 3I7 3SEND_B7 1RECV_B7 3W6 "+
			"1I6 1SEND_B6 3W7 1I7 1SEND_B7 1W6 1W7")
	require.Equal(t, lists(want), lists(got))
	require.Equal(t, 113, pyTorchTicks(t, got))
}

// pyTorchTicks counts as _simulate_comms_compute does. Every action takes a tick. In a
// tick each rank in turn runs its next action if it can, and then those that could not
// try once more, since a later rank may have done what they wait for.
func pyTorchTicks(t require.TestingT, p *schedule.Plan) (ticks int) {
	done := map[schedule.Action]bool{}
	ready := func(a schedule.Action) bool {
		s, m := a.Stage(), a.Microbatch()
		any := func(stage int, kinds ...schedule.Kind) bool {
			return slices.ContainsFunc(kinds, func(kind schedule.Kind) bool { return done[schedule.Act(kind, stage, m)] })
		}
		switch a.Kind() {
		case schedule.F:
			return s == 0 || any(s, schedule.RecvF) || any(s-1, schedule.F)
		case schedule.B, schedule.I:
			return s == p.Placement.Stages()-1 || any(s, schedule.RecvB) || any(s+1, schedule.B, schedule.I)
		case schedule.SendF:
			return any(s, schedule.F)
		case schedule.RecvF:
			return any(s-1, schedule.SendF)
		case schedule.SendB:
			return any(s, schedule.B, schedule.I)
		case schedule.RecvB:
			return any(s+1, schedule.SendB)
		}
		return true
	}
	rest := lists(p)
	for left := true; left; {
		ran := make([]bool, len(rest))
		progress := false
		for range 2 {
			for rank, list := range rest {
				if len(list) > 0 && !ran[rank] && ready(list[0]) {
					done[list[0]] = true
					rest[rank], ran[rank], progress = list[1:], true, true
				}
			}
		}
		ticks++
		left = slices.ContainsFunc(rest, func(list []schedule.Action) bool { return len(list) > 0 })
		require.True(t, progress || !left, "stuck")
	}
	return ticks
}
