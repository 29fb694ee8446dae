package check_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// TestCheckOfShards changes one of two ranks of a plan that gathers weights and reduces gradients.
func TestCheckOfShards(t *testing.T) {
	const good = "0UNSHARD 0F0 0F1 0RESHARD 2UNSHARD 2F0 2B0 2F1 2REDUCE_GRAD 2B1 2REDUCE_GRAD 2RESHARD 0UNSHARD 0B0 0B1 0RESHARD 0REDUCE_GRAD"
	const other = "1F0 1F1 1B0 1B1 1REDUCE_GRAD"
	plan := func(list, other string) *schedule.Plan { return plantest.FromText(t, "0 1 0", 2, list, other) }
	require.NoError(t, check.Plan(plan(good, other)))
	for _, test := range []struct {
		name, list, other string
		text              string
		codes             []check.Code
	}{
		{"compute before the first gathering", "0F0 0UNSHARD 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0RESHARD 0REDUCE_GRAD", other,
			"Rank 0, action 0: 0F0 computes with weights that are not gathered; put an UNSHARD of stage 0 before it, and its RESHARD after it.",
			[]check.Code{check.Sharding}},
		{"compute on a resharded stage", "0UNSHARD 0F0 0F1 0RESHARD 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0UNSHARD 0B1 0RESHARD 0REDUCE_GRAD", other,
			"Rank 0, action 9: 0B0 computes with weights that are not gathered; put an UNSHARD of stage 0 before it, and its RESHARD after it.",
			[]check.Code{check.Sharding}},
		{"gathered twice", "0UNSHARD 0F0 0F1 0UNSHARD 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0RESHARD 0REDUCE_GRAD", other,
			"Rank 0, action 3: 0UNSHARD gathers weights that are already gathered; remove it, or put a RESHARD before it.",
			[]check.Code{check.Sharding}},
		{"released twice", "0UNSHARD 0F0 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0RESHARD 0RESHARD 0REDUCE_GRAD", other,
			"Rank 0, action 11: 0RESHARD releases weights that are not gathered; remove it, or put an UNSHARD before it.",
			[]check.Code{check.Sharding}},
		{"released and never gathered", "0F0 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0RESHARD 0REDUCE_GRAD", other,
			"Rank 0, action 9: 0RESHARD releases weights that are not gathered; remove it, or put an UNSHARD before it.",
			[]check.Code{check.Sharding}},
		{"kept at the end", "0UNSHARD 0F0 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0REDUCE_GRAD", other,
			"Rank 0 never releases the weights of stage 0 after it last gathered them; add 0RESHARD.",
			[]check.Code{check.Sharding}},
		{"weights of another rank", good, "1F0 1F1 0UNSHARD 1B0 1B1 1REDUCE_GRAD",
			"Rank 1, action 2: 0UNSHARD is on the wrong rank; move it to rank 0, which has stage 0.",
			[]check.Code{check.WrongRank}},
		{"weights of a microbatch", "0UNSHARD1 0F0 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0RESHARD 0REDUCE_GRAD", other,
			"Rank 0, action 0: 0UNSHARD1 has no microbatch of its own; omit the microbatch.",
			[]check.Code{check.UnknownMicrobatch}},
		{"B behind the last reduction", "0F0 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0REDUCE_GRAD 0B1", other,
			"Rank 0, action 9: 0B1 adds to gradients after their last reduction; move 0REDUCE_GRAD after the last B or W of the stage.",
			[]check.Code{check.Reduction}},
		{"several W behind the last reduction", "0F0 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0I0 0I1 0REDUCE_GRAD 0W1 0W0", other,
			"Rank 0, action 10: 0W1 adds to gradients after their last reduction; move 0REDUCE_GRAD after the last B or W of the stage.",
			[]check.Code{check.Reduction}},
		{"nothing to reduce yet", "0F0 0F1 0REDUCE_GRAD 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0REDUCE_GRAD", other,
			"Rank 0, action 2: 0REDUCE_GRAD reduces gradients that have not changed since the previous reduction; remove it.",
			[]check.Code{check.Reduction}},
		{"reduced again", good + " 0REDUCE_GRAD", other,
			"Rank 0, action 17: 0REDUCE_GRAD reduces gradients that have not changed since the previous reduction; remove it.",
			[]check.Code{check.Reduction}},
		{"one stage not reduced", good, "1F0 1F1 1B0 1B1",
			"Rank 1 never runs 1REDUCE_GRAD; add it.",
			[]check.Code{check.Missing}},
		{"joined with a gathering", "0UNSHARD& 0F0 0F1 2F0 2B0 2F1 2B1 2REDUCE_GRAD 0B0 0B1 0RESHARD 0REDUCE_GRAD", other,
			"Rank 0, action 0: 0UNSHARD is joined with 0F0; a join needs two computations that do not depend on each other.",
			[]check.Code{check.BadJoin}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check.Plan(plan(test.list, test.other))
			plantest.RequireCodes(t, err, test.codes...)
			require.ErrorContains(t, err, test.text)
		})
	}

	const whole = "0F0 0F1 2F0 2ZERO_GRAD 2B0 2F1 2B1 2REDUCE_GRAD 0ZERO_GRAD 0B0 2WAIT_REDUCE 0B1 0REDUCE_GRAD 0WAIT_REDUCE"
	const otherWhole = "1F0 1F1 1ZERO_GRAD 1B0 1B1 1REDUCE_GRAD 1WAIT_REDUCE"
	require.NoError(t, check.Plan(plan(whole, otherWhole)))
	require.NoError(t, check.Plan(plan(whole, "1F0 1F1 1ZERO_GRAD 1B0 1REDUCE_GRAD 1WAIT_REDUCE 1ZERO_GRAD 1B1 1REDUCE_GRAD 1WAIT_REDUCE")), "in parts")
	for _, test := range []struct{ name, list, text string }{
		{"no whole gradients", "1F0 1F1 1B0 1B1 1REDUCE_GRAD 1WAIT_REDUCE", "Rank 1, action 2: 1B0 adds to whole gradients that do not exist; put 1ZERO_GRAD before it, and 1WAIT_REDUCE after their reduction."},
		{"whole gradients too late", "1F0 1F1 1B0 1ZERO_GRAD 1B1 1REDUCE_GRAD 1WAIT_REDUCE", "Rank 1, action 2: 1B0 adds to whole gradients that do not exist;"},
		{"whole gradients twice", "1F0 1F1 1ZERO_GRAD 1B0 1ZERO_GRAD 1B1 1REDUCE_GRAD 1WAIT_REDUCE", "Rank 1, action 4: 1ZERO_GRAD allocates whole gradients that exist already; remove it, or put 1WAIT_REDUCE before it."},
		{"ended too early", "1F0 1F1 1ZERO_GRAD 1B0 1WAIT_REDUCE 1B1 1REDUCE_GRAD", "Rank 1, action 4: 1WAIT_REDUCE waits for a reduction that has not started; put 1REDUCE_GRAD before it, or remove it."},
		{"added while they are reduced", "1F0 1F1 1ZERO_GRAD 1B0 1REDUCE_GRAD 1B1 1WAIT_REDUCE", "Rank 1, action 5: 1B1 adds to gradients while they are reduced; move 1REDUCE_GRAD after the last B or W of the stage."},
		{"added behind the reduction", "1F0 1F1 1ZERO_GRAD 1B0 1REDUCE_GRAD 1WAIT_REDUCE 1ZERO_GRAD 1B1", "Rank 1, action 7: 1B1 adds to gradients after their last reduction; move 1REDUCE_GRAD after the last B or W of the stage."},
		{"not waited for", "1F0 1F1 1ZERO_GRAD 1B0 1B1 1REDUCE_GRAD", "Rank 1 never waits for the reduction of stage 1; add 1WAIT_REDUCE."},
		{"whole gradients of nothing", "1F0 1F1 1ZERO_GRAD 1B0 1B1 1REDUCE_GRAD 1WAIT_REDUCE 1ZERO_GRAD", "Rank 1 adds nothing to the last whole gradients of stage 1; remove its last 1ZERO_GRAD."},
		{"waited for twice", "1F0 1F1 1ZERO_GRAD 1B0 1B1 1REDUCE_GRAD 1WAIT_REDUCE 1WAIT_REDUCE", "Rank 1, action 7: 1WAIT_REDUCE waits for a reduction that has not started;"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check.Plan(plan(whole, test.list))
			plantest.RequireCodes(t, err, check.Reduction)
			require.ErrorContains(t, err, test.text)
		})
	}
	require.ErrorContains(t, check.Plan(plan(whole, "1F0 1F1 1ZERO_GRAD 1B0 1B1")), "Rank 1 never runs 1REDUCE_GRAD; add it.")

	p := plan(good, other)
	p.Frozen = []bool{false, true, false}
	require.ErrorContains(t, check.Plan(p), "Rank 1, action 4: 1REDUCE_GRAD must not be in this plan: the stage is frozen and has no weight gradient.")
	p = plantest.FromText(t, "0", 1, "0F0 0REDUCE_GRAD")
	p.Mode = schedule.ForwardOnly
	err := check.Plan(p)
	plantest.RequireCodes(t, err, check.Unexpected)
	require.ErrorContains(t, err, "Rank 0, action 1: 0REDUCE_GRAD must not be in this plan: a forward-only plan has no gradients.")
	p = plantest.FromText(t, "0", 1, "0UNSHARD~p 0F0~sor 0RESHARD~r")
	p.Mode = schedule.ForwardOnly
	err = check.Plan(p)
	plantest.RequireCodes(t, err, check.MisplacedDrop)
	require.ErrorContains(t, err, "Rank 0, action 0: 0UNSHARD drops p, but has no microbatch; remove its drops.")
	require.ErrorContains(t, err, "Rank 0, action 2: 0RESHARD drops r,")
}

// A body gathers and releases weights in every repeat; actions without a microbatch are the same in
// each.
func TestShardsInRepeats(t *testing.T) {
	plan := func(body ...schedule.Action) *schedule.Plan {
		return &schedule.Plan{Name: "sharded", Placement: schedule.Looped(1, 1), Microbatches: 100_000,
			Programs: [][]schedule.Segment{{{Body: body, Repeat: 100_000, Stride: 1}}}}
	}
	gather, give, reduce := schedule.NewAction(schedule.Unshard, 0, 0), schedule.NewAction(schedule.Reshard, 0, 0), schedule.NewAction(schedule.ReduceGrad, 0, 0)
	f, b := schedule.NewAction(schedule.F, 0, 0), schedule.NewAction(schedule.B, 0, 0)
	proof, err := check.Prove(plan(gather, f, b, reduce, give), schedule.Unlimited)
	require.NoError(t, err)
	require.Equal(t, int64(500_000), proof.Actions)
	require.Less(t, proof.Visited, int64(50))
	plantest.RequireCodes(t, check.Plan(plan(gather, f, give, b)), check.Sharding)
	plantest.RequireCodes(t, check.Plan(plan(gather, f, b)), check.Sharding)
	err = check.Plan(plan(f, reduce, b))
	plantest.RequireCodes(t, err, check.Reduction)
	require.ErrorContains(t, err, "Rank 0, action 299999: 0B99999 adds to gradients after their last reduction;")
	require.ErrorContains(t, err, "Rank 0, action 1: 0REDUCE_GRAD reduces gradients that have not changed")
}

// TestReplicas: plans of replicas reduce the gradients of a rank in the same order, each once.
func TestReplicas(t *testing.T) {
	plan := func(list string) *schedule.Plan { return plantest.FromText(t, "0 0", 2, list) }
	down := plan("0F0 0F1 1F0 1B0 1F1 1B1 1REDUCE_GRAD 0B0 0B1 0REDUCE_GRAD")
	up := plan("0F0 0F1 1F0 1B0 1F1 1I1 0B0 0B1 0REDUCE_GRAD 1W1 1REDUCE_GRAD")
	parts := plan("0F0 0F1 1F0 1B0 1REDUCE_GRAD 1F1 1B1 1REDUCE_GRAD 0B0 0B1 0REDUCE_GRAD")
	for _, p := range []*schedule.Plan{down, up, parts} {
		require.NoError(t, check.Plan(p))
	}
	require.NoError(t, check.Replicas(down))
	require.NoError(t, check.Replicas(down, down))
	err := check.Replicas(down, up)
	plantest.RequireCodes(t, err, check.Reduction)
	require.ErrorContains(t, err, "Rank 0 reduces gradients of stages in the order [1 0] with 2 microbatches and [0 1] with 2, but replicas need one order;")
	err = check.Replicas(down, parts)
	plantest.RequireCodes(t, err, check.Twice)
	require.ErrorContains(t, err, "Rank 0 runs 1REDUCE_GRAD more than once, but replicas reduce gradients once in a step;")
	plantest.RequireCodes(t, check.Replicas(down, plantest.FromText(t, "0 1", 2, "0F0 0F1", "1F0 1F1")), check.Malformed)
}

// TestPyTorchWaits: a plan for PyTorch that has waits has one for each send and each reduction, and a rank
// waits for a reduction before it starts the next one, as PyTorch 2.15 requires.
func TestPyTorchWaits(t *testing.T) {
	const good = "0F0 0SEND_F0 2RECV_F0 2F0 2B0 2SEND_B0 2REDUCE_GRAD 0WAIT_F0 0RECV_B0 0B0 2WAIT_REDUCE 0REDUCE_GRAD 2WAIT_B0 0WAIT_REDUCE"
	const other = "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1WAIT_F0 1WAIT_B0 1REDUCE_GRAD 1WAIT_REDUCE"
	plan := func(list string) *schedule.Plan {
		p := plantest.FromText(t, "0 1 0", 1, list, other)
		p.Runtime = schedule.PyTorch
		return p
	}
	require.NoError(t, check.Plan(plan(good)))
	for _, test := range []struct{ name, from, to, text string }{
		{"a send without a wait", " 2WAIT_B0", "", "Rank 0 never runs 2WAIT_B0; add it."},
		{"a wait before its send", "0SEND_F0 2RECV_F0 2F0 2B0 2SEND_B0 2REDUCE_GRAD 0WAIT_F0", "0WAIT_F0 0SEND_F0 2RECV_F0 2F0 2B0 2SEND_B0 2REDUCE_GRAD", "Rank 0, action 1: 0WAIT_F0 runs before 0SEND_F0, which it waits for; move 0SEND_F0 before it."},
		{"two waits", "2WAIT_B0", "2WAIT_B0 2WAIT_B0", "Rank 0, action 13: 2WAIT_B0 is a duplicate; remove one of the two."},
		{"a reduction without a wait", " 0WAIT_REDUCE", "", "Rank 0 never waits for the reduction of stage 0; add 0WAIT_REDUCE."},
		{"two reductions at once", "2WAIT_REDUCE 0REDUCE_GRAD", "0REDUCE_GRAD 2WAIT_REDUCE", "Rank 0, action 10: 0REDUCE_GRAD starts a reduction before the rank has waited for that of stage 2; put 2WAIT_REDUCE before it."},
		{"a wait for no reduction", "2WAIT_REDUCE", "2WAIT_REDUCE 2WAIT_REDUCE", "Rank 0, action 11: 2WAIT_REDUCE waits for a reduction that has not started; put 2REDUCE_GRAD before it, or remove it."},
	} {
		require.Contains(t, good, test.from)
		require.ErrorContains(t, check.Plan(plan(strings.Replace(good, test.from, test.to, 1))), test.text, test.name)
	}
	early := plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0F1 0SEND_F1 0WAIT_F0 0WAIT_F1 0RECV_B0 0B0 0RECV_B1 0B1",
		"1RECV_F0 1F0 1B0 1SEND_B0 1WAIT_B0 1RECV_F1 1F1 1B1 1SEND_B1 1WAIT_B1")
	early.Runtime = schedule.PyTorch
	require.ErrorContains(t, check.Plan(early), "Ranks 0 and 1 wait for each other: rank 0 is at action 5, 0WAIT_F1, and waits for 1RECV_F1 of rank 1; rank 1 is at action 4, 1WAIT_B0")
	bare := strings.NewReplacer(" 0WAIT_F0", "", " 2WAIT_B0", "", " 2WAIT_REDUCE", "", " 0WAIT_REDUCE", "").Replace(good)
	older := plantest.FromText(t, "0 1 0", 1, bare, "1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1REDUCE_GRAD")
	older.Runtime = schedule.PyTorch
	require.NoError(t, check.Plan(older), "PyTorch up to 2.14 has no waits")
}
