package check_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// TestCheckFindsEveryFault breaks a plan in every way that Plan detects, and requires the code, the
// position and the text of the fault.
func TestCheckFindsEveryFault(t *testing.T) {
	for _, test := range []struct {
		name     string
		from, to string // the replacement in the program
		stages   string
		mode     func(*schedule.Plan)
		code     check.Code
		also     []check.Code // the codes of faults that follow
		position int64
		text     string
	}{
		{name: "unknown stage", from: "1F1~pio ", to: "1F1~pio 2F1 ", code: check.UnknownStage, position: 6,
			text: "Rank 0, action 6: 2F1 belongs to an unknown stage; stages are 0 to 1."},
		{name: "unknown microbatch", from: "0F0~p ", to: "0F0~p 0F3 ", code: check.UnknownMicrobatch, position: 1,
			text: "Rank 0, action 1: 0F3 belongs to an unknown microbatch; microbatches are 0 to 2."},
		{name: "kind without a rule", from: "0F0~p ", to: "0RECOMPUTE0 0F0~p ", code: check.Unexpected, position: 0,
			text: "Rank 0, action 0: 0RECOMPUTE0 must not be in this plan: there is no rule for RECOMPUTE yet."},
		{name: "send within a rank", from: "0F0~p ", to: "0F0~p 0SEND_F0 ", code: check.Unexpected, position: 1,
			text: "Rank 0, action 1: 0SEND_F0 must not be in this plan: no rank boundary follows this stage."},
		{name: "receive within a rank", from: "0F0~p ", to: "0F0~p 1RECV_F0 ", code: check.Unexpected, position: 1,
			text: "Rank 0, action 1: 1RECV_F0 must not be in this plan: no rank boundary precedes this stage."},
		{name: "wait within a rank", from: "0F0~p ", to: "0F0~p 0WAIT_F0~t ", code: check.Unexpected, position: 1,
			text: "Rank 0, action 1: 0WAIT_F0 must not be in this plan: no rank boundary follows this stage."},
		{name: "split backward of a stage that does not split", from: "1B1~ps 0B1~gsr", to: "1B1~ps 0I1~gs 0W1~sr", code: check.Unexpected, also: []check.Code{check.Missing, check.BadRetire}, position: 7,
			text: "Rank 0, action 7: 0I1 must not be in this plan: the stage does not split its backward, so it runs B."},
		{name: "missing", from: " 0F1~p 1F1~pio 1B1~ps 0B1~gsr", to: "", code: check.Missing, position: -1,
			text: "Rank 0 never runs 1B1; add it."},
		{name: "missing, several", from: " 0F1~p 1F1~pio 1B1~ps 0B1~gsr 0F2~p 1F2~pio 1B2~ps 0B2~gsr", to: "", code: check.Missing, position: -1,
			text: "Rank 0 never runs 0B1, nor the same action of any microbatch up to 2; add it."},
		{name: "twice", from: "0B1~gsr", to: "0B1~gs 0B1~gsr", code: check.Twice, position: 8,
			text: "Rank 0, action 8: 0B1 is a duplicate; remove one of the two."},
		{name: "full and split backward", from: "0B1~gsr", to: "0B1~gsr 0W1~s", code: check.Mixed, also: []check.Code{check.BadRetire}, position: 8,
			stages: "stage 0: window=1 facts=split reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1\n",
			text:   "Rank 0, action 8: 0W1 conflicts with a full backward, B, of the same stage and microbatch; use B, or I and W."},
		{name: "weight gradient and full backward", from: "0B1~gsr", to: "0W1~s 0B1~gsr", code: check.Mixed, position: 8,
			stages: "stage 0: window=1 facts=split reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1\n",
			text:   "Rank 0, action 8: 0B1 is a full backward that conflicts with an I or W of the same stage and microbatch; use B, or I and W."},
		{name: "split and full backward", from: "0B1~gsr", to: "0I1~gs 0W1~s 0B1~gsr", code: check.Mixed, position: 9,
			stages: "stage 0: window=1 facts=split reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1\n",
			text:   "Rank 0, action 9: 0B1 is a full backward that conflicts with an I or W of the same stage and microbatch; use B, or I and W."},
		{name: "weight gradient first", from: "0B1~gsr", to: "0W1~s 0I1~gsr", code: check.Order, position: 7,
			stages: "stage 0: window=1 facts=split reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1\n",
			text:   "Rank 0, action 7: 0W1 runs before 0I1, which saves the state it takes; move 0I1 before it."},
		{name: "input gradient before the gradient", from: "1B1~ps 0B1~gsr", to: "0I1~gs 0W1~sr 1I1~ps 1W1~s", code: check.Order, also: []check.Code{check.BadRetire}, position: 6,
			stages: "stage 0: window=1 facts=split reads=F:0 drops=F:0\nstage 1: window=1 facts=split reads=F:1,2;B:1;I:1 drops=F:2;B:1;I:1\n",
			text:   "Rank 0, action 6: 0I1 runs before 1I1, whose gradient it reads; move 1I1 before it."},
		{name: "forward too early", from: "0F1~p 1F1~pio", to: "1F1~pio 0F1~p", code: check.Order, position: 4,
			text: "Rank 0, action 4: 1F1 runs before 0F1, whose output it reads; move 0F1 before it."},
		{name: "backward before the gradient", from: "1B1~ps 0B1~gsr", to: "0B1~gsr 1B1~ps", code: check.Order, also: []check.Code{check.BadRetire}, position: 6,
			text: "Rank 0, action 6: 0B1 runs before 1B1, whose gradient it reads; move 1B1 before it."},
		{name: "backward before the forward", from: "1F1~pio 1B1~ps", to: "1B1~ps 1F1~pio", code: check.Order, also: []check.Code{check.UseAfterDrop}, position: 5,
			text: "Rank 0, action 5: 1B1 runs before 1F1, which saves the state it takes; move 1F1 before it."},
		{name: "join at the end", from: "0B2~gsr", to: "0B2~gsr&", code: check.BadJoin, position: 11,
			text: "Rank 0, action 11: 0B2 is joined with the next action, but is the last action of its segment; put both into one body."},
		{name: "join of dependent actions", from: "1F1~pio 1B1", to: "1F1~pio& 1B1", code: check.BadJoin, position: 5,
			text: "Rank 0, action 5: 1F1 is joined with 1B1; a join needs two computations that do not depend on each other."},
		{name: "join with an action that is no computation", from: "1F1~pio 1B1", to: "1F1~pio& 1OFFLOAD0 1B1", code: check.BadJoin, also: []check.Code{check.Unexpected}, position: 5,
			text: "Rank 0, action 5: 1F1 is joined with 1OFFLOAD0; a join needs two computations that do not depend on each other."},
		{name: "join of three", from: "0B1~gsr 0F2~p", to: "0B1~gsr& 0F2~p&", code: check.BadJoin, position: 7,
			text: "Rank 0, action 7: 0B1 is joined with 0F2; a join needs two computations that do not depend on each other."},
		{name: "second part never dropped", from: "1F1~pio", to: "1F1~io", code: check.MissingDrop, position: -1,
			text: "Rank 0 never drops part 2 of the entry of microbatch 1; let the last action that reads it drop it."},
		{name: "only a high part, never dropped", from: "0F1~p", to: "0F1", code: check.MissingDrop, position: -1,
			stages: "stage 0: window=1 facts=- reads=F:9 drops=F:9\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1\n",
			text:   "Rank 0 never drops part 9 of the entry of microbatch 1; let the last action that reads it drop it."},
		{name: "part used after its drop", from: "1F1~pio", to: "1F1~pio", code: check.UseAfterDrop, also: []check.Code{check.MisplacedDrop}, position: 2,
			stages: "stage 0: window=1 facts=- reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:1,2\n",
			text:   "Rank 0, action 2: 1B0 reads part 1 of its entry, which was dropped before; let the last action that reads it drop it."},
		{name: "part read after its drop, by an action without drops", code: check.UseAfterDrop, position: 2,
			stages: "stage 0: window=1 facts=- reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:1,2\n",
			mode: func(p *schedule.Plan) {
				for _, s := range p.Programs[0] {
					for i, a := range s.Body {
						if a.Stage() == 1 && a.Kind() == schedule.B {
							s.Body[i] = a.WithDrop(a.Drop() &^ schedule.DropParts)
						}
					}
				}
			},
			text: "Rank 0, action 2: 1B0 reads part 1 of its entry, which was dropped before; let the last action that reads it drop it."},
		{name: "part dropped twice", from: "1F1~pio", to: "1F1~pio", code: check.DoubleDrop, also: []check.Code{check.UseAfterDrop}, position: 2,
			stages: "stage 0: window=1 facts=- reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:1,2;B:1\n",
			text:   "Rank 0, action 2: 1B0 drops part 1 of its entry, which was dropped before; let the last action that reads it drop it."},
		{name: "part dropped by an action that does not read it", from: "0F1~p", to: "0F1~p", code: check.MisplacedDrop, position: 2,
			stages: "stage 0: window=1 facts=- reads=F:0 drops=F:0\nstage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1,3\n",
			text:   "Rank 0, action 2: 1B0 drops part 3 of its entry, which it does not read; let the last action that reads it drop it."},
		{name: "no parts in the table", from: "0B1~gsr", to: "0B1~pgsr", code: check.MisplacedDrop, position: 7,
			text: "Rank 0, action 7: 0B1 drops entry parts, but the plan's table lists none for 0B; remove drop p."},
		{name: "part never dropped", from: "1B1~ps", to: "1B1~s", code: check.MissingDrop, position: -1,
			text: "Rank 0 never drops part 1 of the entry of microbatch 1; let the last action that reads it drop it."},
		{name: "input kept", from: "1F1~pio", to: "1F1~po", code: check.MissingDrop, position: 5,
			text: "Rank 0, action 5: 1F1 takes the input and must drop it; give it drop i."},
		{name: "output kept", from: "1F1~pio", to: "1F1~pi", code: check.MissingDrop, position: 5,
			text: "Rank 0, action 5: 1F1 takes the output and must drop it; give it drop o."},
		{name: "gradient kept", from: "0B1~gsr", to: "0B1~sr", code: check.MissingDrop, position: 7,
			text: "Rank 0, action 7: 0B1 takes the output's gradient and must drop it; give it drop g."},
		{name: "saved kept", from: "1B1~ps", to: "1B1~p", code: check.MissingDrop, position: 6,
			text: "Rank 0, action 6: 1B1 takes the saved state and must drop it; give it drop s."},
		{name: "input dropped again", from: "1B1~ps", to: "1B1~pis", code: check.DoubleDrop, position: 6,
			text: "Rank 0, action 6: 1B1 drops the input, which an earlier action has dropped; remove drop i."},
		{name: "input of the first stage", from: "0F1~p", to: "0F1~pi", code: check.MisplacedDrop, position: 4,
			text: "Rank 0, action 4: 0F1 drops the input, but there is none to drop here; remove drop i."},
		{name: "output that the next stage reads", from: "0F1~p", to: "0F1~po", code: check.MisplacedDrop, position: 4,
			text: "Rank 0, action 4: 0F1 drops the output, but there is none to drop here; remove drop o."},
		{name: "saved state that backward takes", from: "0F1~p", to: "0F1~ps", code: check.UseAfterDrop, position: 4,
			text: "Rank 0, action 4: 0F1 drops the saved state, which a later action uses; remove drop s."},
		{name: "gradient of the loss", from: "1B1~ps", to: "1B1~pgs", code: check.MisplacedDrop, position: 6,
			text: "Rank 0, action 6: 1B1 drops the output's gradient, but there is none to drop here; remove drop g."},
		{name: "gradient without a backward", from: "0F1~p", to: "0F1~pg", mode: func(p *schedule.Plan) { p.Frozen = []bool{true, false}; p.StageInfo[0].Frozen = true },
			code: check.MisplacedDrop, also: []check.Code{check.Unexpected, check.MissingDrop, check.BadRetire}, position: 4,
			text: "Rank 0, action 4: 0F1 drops the output's gradient, but there is none to drop here; remove drop g."},
		{name: "sent buffer", from: "1B1~ps", to: "1B1~pst", code: check.MisplacedDrop, position: 6,
			text: "Rank 0, action 6: 1B1 drops the sent buffer, but there is none to drop here; remove drop t."},
		{name: "drop without a name", mode: func(p *schedule.Plan) { b := p.Programs[0][0].Body; b[3] = b[3].WithDrop(b[3].Drop() | 1<<12) },
			code: check.MisplacedDrop, position: 3,
			text: "Rank 0, action 3: 0B0 has drop bits 0x1000, which are undefined; clear them."},
		{name: "retires early", from: "1B1~ps 0B1~gsr", to: "1B1~psr 0B1~gs", code: check.BadRetire, position: 7,
			text: "Rank 0, action 7: 0B1 runs after its microbatch has retired here; put r only on the last action of the microbatch."},
		{name: "retires twice", from: "1B1~ps", to: "1B1~psr", code: check.BadRetire, position: 7,
			text: "Rank 0, action 7: 0B1 retires its microbatch, which has retired here already; put r only on the last action."},
		{name: "never retires", from: "0B1~gsr", to: "0B1~gs", code: check.BadRetire, position: -1,
			text: "Rank 0 never retires microbatch 1; put r on the last action of each microbatch."},
		{name: "window", mode: func(p *schedule.Plan) { p.StageWindows[1] = 0 }, code: check.WindowExceeded, position: 0,
			text: "Rank 0, action 0: 0F0 has 1 consecutive microbatches of stage 1 in flight, but its window is 0; declare 1."},
		{name: "entries", mode: func(p *schedule.Plan) { p.EntryWindows[0] = 0 }, code: check.EntriesExceeded, position: 0,
			text: "Rank 0, action 0: 0F0 holds 1 consecutive batch entries, but the rank declares 0; declare 1."},
		{name: "forward-only with backward", mode: func(p *schedule.Plan) { p.Mode = schedule.ForwardOnly }, code: check.Unexpected, also: []check.Code{check.MissingDrop, check.BadRetire}, position: 2,
			text: "Rank 0, action 2: 1B0 must not be in this plan: a forward-only plan has no backward."},
		{name: "frozen prefix with backward", mode: func(p *schedule.Plan) { p.Frozen = []bool{true, false}; p.StageInfo[0].Frozen = true }, code: check.Unexpected, also: []check.Code{check.MissingDrop, check.BadRetire}, position: 3,
			text: "Rank 0, action 3: 0B0 must not be in this plan: neither this stage nor any before it trains, so it has no backward."},
		{name: "frozen stage with weight gradient", mode: func(p *schedule.Plan) { p.Frozen = []bool{false, true}; p.StageInfo[1].Frozen = true }, code: check.Unexpected, also: []check.Code{check.Missing, check.MissingDrop}, position: 2,
			text: "Rank 0, action 2: 1B0 must not be in this plan: the stage is frozen, so its backward is I alone."},
		{name: "facts of another plan", mode: func(p *schedule.Plan) { p.StageInfo[1].Frozen = true }, code: check.Malformed, position: -1,
			text: "Stage 1 is frozen in only one of the plan and its facts; give the generator the same Frozen as the facts."},
		{name: "all frozen", mode: func(p *schedule.Plan) { p.Frozen = []bool{true, true} }, code: check.Malformed, position: -1,
			text: "Every stage is frozen, so nothing trains; leave one trainable, or make the plan forward-only."},
		{name: "short frozen", mode: func(p *schedule.Plan) { p.Frozen = []bool{true} }, code: check.Malformed, position: -1,
			text: "Frozen has 1 entries for 2 stages; give one for each stage, or nil."},
		{name: "short windows", mode: func(p *schedule.Plan) { p.StageWindows = p.StageWindows[:1] }, code: check.Malformed, position: -1,
			text: "StageWindows has 1 entries but the placement requires 2; run the lifetime pass again."},
		{name: "parts without facts", mode: func(p *schedule.Plan) { p.StageInfo = nil }, code: check.Malformed, position: -1,
			text: "Parts lists the entry parts that actions drop, but there are no Facts to list their readers; give both."},
		{name: "placed nowhere", mode: func(p *schedule.Plan) { p.Placement.Rank[1] = 1 }, code: check.Malformed, position: -1,
			text: "Stage 1 is placed on rank 1; place it on one of ranks 0 to 0."},
		{name: "program missing", mode: func(p *schedule.Plan) { p.Placement.Ranks = 2 }, code: check.Malformed, position: -1,
			text: "The plan has 2 ranks and 1 programs; give every rank a program."},
		{name: "no microbatches", mode: func(p *schedule.Plan) { p.Microbatches = 0 }, code: check.Malformed, position: -1,
			text: "The plan has 0 microbatches; there must be 1 to 268435456."},
		{name: "no stages", mode: func(p *schedule.Plan) { *p = schedule.Plan{} }, code: check.Malformed, position: -1,
			text: "The plan has 0 stages; there must be 1 to 16384."},
		{name: "no mode", mode: func(p *schedule.Plan) { p.Mode = 9 }, code: check.Malformed, position: -1,
			text: "The plan has unknown mode 9; use Training or ForwardOnly."},
		{name: "empty body", mode: func(p *schedule.Plan) { p.Programs[0][0].Body = nil }, code: check.Malformed, position: -1,
			text: "Segment 0 of rank 0 has 0 actions, repeat 1 and stride 0; it must have actions, a repeat of 1 to 268435456 and a stride of -268435456 to 268435456."},
	} {
		t.Run(test.name, func(t *testing.T) {
			stages := test.stages
			if stages == "" {
				stages = plantest.TwoStages
			}
			require.Contains(t, plantest.TwoOpened, test.from)
			p := plantest.Plan(t, 2, stages+strings.Replace(plantest.TwoOpened, test.from, test.to, 1))
			if test.mode != nil {
				test.mode(p)
			}
			err := check.Plan(p)
			require.ErrorIs(t, err, check.ErrInvalidPlan)
			require.NotErrorIs(t, err, waitgraph.ErrDeadlock)
			invalid, _ := errors.AsType[*check.Error](err)
			at := slices.IndexFunc(invalid.Faults, func(f check.Fault) bool { return f.Code == test.code && f.Text == test.text })
			require.GreaterOrEqual(t, at, 0, "%v", err)
			require.Equal(t, test.position, invalid.Faults[at].Position)
			require.ElementsMatch(t, append(test.also, test.code), plantest.CodesOf(err), "%v", err)
			require.Contains(t, err.Error(), test.text)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	for _, program := range []string{plantest.TwoProgram, plantest.TwoOpened} {
		require.NoError(t, check.Plan(plantest.Plan(t, 2, plantest.TwoStages+program)))
	}
}

func TestCheckReportsAllFaults(t *testing.T) {
	p := plantest.Plan(t, 2, plantest.TwoStages+strings.NewReplacer("0B0~gsr", "0B0~gs", "1F1~pio", "1F1~po", "0F2~p 1F2~pio", "1F2~pio 0F2~p").Replace(plantest.TwoOpened))
	plantest.RequireCodes(t, check.Plan(p), check.Order, check.MissingDrop, check.BadRetire)

	many := plantest.Plan(t, 2, plantest.TwoStages+plantest.TwoOpened)
	for range 30 {
		many.Programs[0] = append(many.Programs[0], schedule.Segment{Body: []schedule.Action{schedule.NewAction(schedule.F, 0, 1), schedule.NewAction(schedule.F, 1, 1)}, Repeat: 1})
	}
	invalid, ok := errors.AsType[*check.Error](check.Plan(many))
	require.True(t, ok)
	of := map[check.Code]int{}
	for _, f := range invalid.Faults {
		of[f.Code]++
	}
	require.Equal(t, map[check.Code]int{check.Twice: 5, check.UseAfterDrop: 5, check.MissingDrop: 5, check.BadRetire: 5}, of)
	require.Positive(t, invalid.More[check.Twice])
	require.Contains(t, invalid.Error(), `more faults of kind "action twice".`)
}

// A fault that recurs in every repeat is reported once, at its first occurrence.
func TestCheckReportsRepeatsOnce(t *testing.T) {
	p := plantest.Plan(t, 2, plantest.TwoStages+strings.Replace(plantest.TwoProgram, "1F0~pio", "1F0~po", 1))
	p.Microbatches, p.Programs[0][0].Repeat = 1_000_000, 1_000_000
	invalid, ok := errors.AsType[*check.Error](check.Plan(p))
	require.True(t, ok)
	require.Equal(t, []check.Fault{{Code: check.MissingDrop, Rank: 0, Position: 1, Action: p.Programs[0][0].Body[1],
		Text: "Rank 0, action 1: 1F0 takes the input and must drop it; give it drop i."}}, invalid.Faults)
	require.Empty(t, invalid.More)
}

// A plan that has only some of the tables of the lifetime pass must have correct drops, too.
func TestCheckOfHalfMarkedPlans(t *testing.T) {
	for _, keep := range []func(p *schedule.Plan){
		func(p *schedule.Plan) { p.StageWindows = []int{1, 1} },
		func(p *schedule.Plan) { p.EntryWindows = []int{1} },
		func(p *schedule.Plan) {
			p.StageInfo, p.Parts = make([]schedule.StageInfo, 2), make([][schedule.NumKinds]uint64, 2)
		},
	} {
		p := plantest.Build(t, schedule.DepthFirst, 2, 3, 1)
		bare := plantest.Made(t, schedule.DepthFirst, schedule.Params{Placement: p.Placement, Microbatches: 3})
		require.NoError(t, check.Plan(bare))
		keep(bare)
		plantest.RequireCodes(t, check.Plan(bare), check.MissingDrop, check.BadRetire)
	}
}

// Frozen facts do not matter to a forward-only plan, which has no backward.
func TestForwardOnlyOfFrozenFacts(t *testing.T) {
	p := plantest.FromText(t, "0 1", 1, "0F0", "1F0")
	p.Mode, p.StageInfo = schedule.ForwardOnly, []schedule.StageInfo{{Frozen: true}, {}}
	require.NoError(t, check.Plan(p))
}

// The actions of a joined pair depend on each other in the same way in every repeat, even if their microbatches are far
// apart.
func TestJoinsInRepeats(t *testing.T) {
	p := plantest.FromText(t, "0", 6, "")
	f, b := schedule.F, schedule.B
	p.Programs[0] = []schedule.Segment{
		{Body: []schedule.Action{schedule.NewAction(f, 0, 0), schedule.NewAction(f, 0, 1)}, Repeat: 1},
		{Body: []schedule.Action{schedule.NewAction(f, 0, 2).WithJoin(true), schedule.NewAction(b, 0, 0)}, Repeat: 4, Stride: 1},
		{Body: []schedule.Action{schedule.NewAction(b, 0, 4), schedule.NewAction(b, 0, 5)}, Repeat: 1},
	}
	require.NoError(t, check.Plan(p))
}

// A stride of two leaves a gap in every repeat; such a plan is checked up to a limit.
func TestCheckOfScatteredMicrobatches(t *testing.T) {
	even := func(repeat int) *schedule.Plan {
		return &schedule.Plan{Placement: schedule.Looped(1, 1), Mode: schedule.ForwardOnly, Microbatches: 2 * repeat, Programs: [][]schedule.Segment{{
			{Body: []schedule.Action{schedule.NewAction(schedule.F, 0, 0)}, Repeat: repeat, Stride: 2},
			{Body: []schedule.Action{schedule.NewAction(schedule.F, 0, 1)}, Repeat: repeat, Stride: 2},
		}}}
	}
	require.NoError(t, check.Plan(even(5_000)))
	if *testkit.Long { // reaching the limit takes a while
		plantest.RequireCodes(t, check.Plan(even(schedule.MaxMicrobatches/2)), check.Unproved)
	}
}

// TestCheckOfSegments compares the faults in a plan of segments, whose repeats the check skips,
// with the faults in the same plan written out.
func TestCheckOfSegments(t *testing.T) {
	draw := []func(*rapid.T) (*schedule.Plan, []bool){plantest.DrawPipelined, plantest.DrawChunks}
	rapid.Check(t, func(t *rapid.T) {
		p, split := draw[rapid.IntRange(0, 1).Draw(t, "draw")](t)
		facts := plantest.DrawFacts(t, p, split)
		p = plantest.Quantized(t, p, facts)
		if marked, err := lower.Lifetimes(p, facts, plantest.Parts); err == nil {
			p = marked
		}
		for range rapid.IntRange(0, 2).Draw(t, "spoils") {
			spoil(t, p, 0)
		}
		got, want := check.Plan(p), check.Plan(plantest.Expand(p))
		require.Equal(t, want == nil, got == nil, "segments: %v\nlists: %v", got, want)
		if invalid, ok := errors.AsType[*check.Error](want); ok && len(invalid.More) == 0 {
			require.Equal(t, plantest.CodesOf(want), plantest.CodesOf(got), "segments: %v\nlists: %v", got, want)
		}
	})
}

// The cost of a check does not depend on the number of microbatches.
func TestCostIsIndependentOfMicrobatches(t *testing.T) {
	if testkit.Raced {
		t.Skip("under the race detector, pools drop their contents at random, so allocation counts vary")
	}
	for name, rule := range map[string]schedule.Rule{"depth-first": schedule.DepthFirst, "breadth-first": schedule.BreadthFirst} {
		cost := func(microbatches int) float64 {
			return testing.AllocsPerRun(5, func() { plantest.Build(t, rule, 4, microbatches, 1) })
		}
		require.Equal(t, cost(8), cost(1_000_000), name)
	}
	check := func(microbatches int) float64 {
		plan := plantest.Build(t, schedule.DepthFirst, 4, microbatches, 4)
		return testing.AllocsPerRun(5, func() { _ = check.Plan(plan) })
	}
	require.Equal(t, check(32), check(1_000_000))
}

// A joined pair runs as a unit. If one of its actions depends on the other through other ranks, the
// pair waits for itself.
func TestJoinedPairThatNeedsItself(t *testing.T) {
	alone := plantest.FromText(t, "0 1 0", 2, "0F0 2F0 2B0 0F1 2F1 2B1 0B0 0B1", "1F0 1B0 1F1 1B1")
	require.NoError(t, check.Plan(alone))
	joined := plantest.FromText(t, "0 1 0", 2, "0F0 2F0 2B0 0F1& 0B0 2F1 2B1 0B1", "1F0 1B0 1F1 1B1")
	require.NoError(t, check.Plan(joined))
	for _, test := range []struct{ first, second, text string }{
		{"0F0 2F0 2B0 0F1& 0B0 2F1 2B1 0B1", "1F0 1F1 1B0 1B1", "Ranks 0 and 1 wait for each other: rank 0 is at action 3, 0F1 joined with 0B0," +
			" and waits for 1B0 of rank 1; rank 1 is at action 1, 1F1, and waits for 0F1 of rank 0;" +
			" remove the join of 0F1 and 0B0, because a joined pair starts only when both actions can run."},
		{"0F0& 2F0 2B0 0F1 0B0 2F1 2B1 0B1", "1F0 1B0 1F1 1B1", "Ranks 0 and 1 wait for each other: rank 0 is at action 0, 0F0 joined with 2F0," +
			" and waits for 1F0 of rank 1; rank 1 is at action 0, 1F0, and waits for 0F0 of rank 0;" +
			" remove the join of 0F0 and 2F0, because a joined pair starts only when both actions can run."},
	} {
		p := plantest.FromText(t, "0 1 0", 2, test.first, test.second)
		err := check.Plan(p)
		plantest.RequireCodes(t, err, check.Deadlock)
		require.ErrorContains(t, err, test.text)
		p.Programs[0][0].Body = append([]schedule.Action(nil), p.Programs[0][0].Body...)
		for i, a := range p.Programs[0][0].Body {
			p.Programs[0][0].Body[i] = a.WithJoin(false)
		}
		require.NoError(t, check.Plan(p))
	}

	// With transfers, the receives of both actions precede the pair; otherwise the pair runs too
	// early.
	p := plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0F1& 0RECV_B0 0SEND_F1 0B0 0RECV_B1 0B1", secondSends)
	plantest.RequireCodes(t, check.Plan(p), check.BadJoin)
	p = plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0F1& 0B0 0SEND_F1 0RECV_B0 0RECV_B1 0B1", secondSends)
	plantest.RequireCodes(t, check.Plan(p), check.Order)
	p = plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0RECV_B0 0F1& 0B0 0SEND_F1 0RECV_B1 0B1", secondSends)
	require.NoError(t, check.Plan(p))
}

// TestEveryPlanIsWhole checks all schedules for small numbers of ranks, stages and microbatches.
func TestEveryPlanIsWhole(t *testing.T) {
	if !*testkit.Long {
		t.Skip("takes a minute; run with -long")
	}
	for _, s := range schedule.Schedules() {
		for ranks := 1; ranks <= 16; ranks++ {
			placement, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			for microbatches := 1; microbatches <= 40; microbatches++ {
				plan := plantest.Made(t, s.Rule, schedule.Params{Placement: placement, Microbatches: microbatches})
				plantest.RequireWhole(t, plan)
				plantest.Clocks(t, plan, plantest.Ticks)
			}
		}
	}
}
