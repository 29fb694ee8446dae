package plantest

import (
	"math/rand/v2"
	"slices"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// Parts is the number of entry parts in random facts.
const Parts = 5

// DrawParams draws parameters of a plan on one rank.
func DrawParams(t *rapid.T) schedule.Params {
	stages := rapid.IntRange(1, 5).Draw(t, "stages")
	p := schedule.Params{
		Placement:    schedule.Looped(1, stages),
		Microbatches: rapid.IntRange(1, 24).Draw(t, "microbatches"),
		Group:        rapid.IntRange(0, 7).Draw(t, "group"),
		Mode:         schedule.Mode(rapid.IntRange(0, 1).Draw(t, "mode")),
	}
	if rapid.Bool().Draw(t, "some frozen") {
		p.Frozen = rapid.SliceOfN(rapid.Bool(), stages, stages).Draw(t, "frozen")
		if p.Mode == schedule.Training && !slices.Contains(p.Frozen, false) {
			p.Frozen[rapid.IntRange(0, stages-1).Draw(t, "free")] = false
		}
	}
	return p
}

// DrawFacts draws facts for the stages of a plan.
func DrawFacts(t *rapid.T, p *schedule.Plan, split []bool) []schedule.StageInfo {
	facts := make([]schedule.StageInfo, p.Placement.Stages())
	for s := range facts {
		facts[s].Frozen = s < len(p.Frozen) && p.Frozen[s]
		facts[s].Split = split[s]
		facts[s].Recomputes = rapid.Bool().Draw(t, "recomputes")
		facts[s].Quantizes = rapid.IntRange(0, 2).Draw(t, "quantizes") == 0
		for kind := schedule.F; kind <= schedule.W; kind++ {
			if rapid.IntRange(0, 2).Draw(t, "reads") == 0 {
				facts[s].Reads[kind] = rapid.Uint64Range(0, 1<<Parts-1).Draw(t, "parts")
			}
		}
	}
	return facts
}

// Quantized returns the plan with the QUANTIZE actions that the facts require. The parity of the number
// of microbatches selects their positions. Quantized returns an invalid plan unchanged.
func Quantized(t require.TestingT, p *schedule.Plan, facts []schedule.StageInfo) *schedule.Plan {
	if check.Plan(p) != nil {
		return p
	}
	q, err := lower.Quantize(p, facts, lower.Quantizing(p.Microbatches%2))
	require.NoError(t, err)
	return q
}

// Lane is the sequence of actions of one kind and stage in a pipelined plan.
type Lane struct {
	Kind          schedule.Kind
	Stage, Offset int // Offset is the number of groups by which the lane starts later
}

// Interleave returns a program in which each lane runs the same number of groups of microbatches, from
// its offset on, with descending groups if down is set. Warm-up, steady state and drain are segments.
// The function order returns the i-th microbatch of a group in a lane.
func Interleave(lanes []Lane, groups, group int, down bool, order func(lane, i int) int) (program []schedule.Segment) {
	var cuts []int
	for _, l := range lanes {
		cuts = append(cuts, l.Offset, l.Offset+groups)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	for i := range max(0, len(cuts)-1) {
		segment := schedule.Segment{Repeat: cuts[i+1] - cuts[i], Stride: group}
		if down {
			segment.Stride = -group
		}
		for lane, l := range lanes {
			g := cuts[i] - l.Offset
			if g < 0 || g >= groups {
				continue
			}
			if down {
				g = groups - 1 - g
			}
			for k := range group {
				segment.Body = append(segment.Body, schedule.NewAction(l.Kind, l.Stage, g*group+order(lane, k)))
			}
		}
		if len(segment.Body) > 0 {
			program = append(program, segment)
		}
	}
	return program
}

// DrawPipelined draws a plan on one rank that interleaves the kinds of all stages. Each kind lags the
// kind that it needs by a number of groups of microbatches. Some of these plans are invalid, because a
// lane may precede its input in the body.
func DrawPipelined(t *rapid.T) (*schedule.Plan, []bool) {
	stages := rapid.IntRange(1, 4).Draw(t, "stages")
	p := &schedule.Plan{Name: "pipelined", Placement: schedule.Looped(1, stages)}
	if rapid.Bool().Draw(t, "some frozen") {
		p.Frozen = rapid.SliceOfN(rapid.Bool(), stages, stages).Draw(t, "frozen")
		p.Frozen[rapid.IntRange(0, stages-1).Draw(t, "free")] = false
	}
	split := rapid.SliceOfN(rapid.Bool(), stages, stages).Draw(t, "split")
	lag := func() int { return max(0, rapid.IntRange(-2, 3).Draw(t, "lag")) }

	var lanes []Lane
	offset := 0
	for s := range stages {
		lanes = append(lanes, Lane{Kind: schedule.F, Stage: s, Offset: offset})
		offset += lag()
	}
	for s := stages - 1; s >= 0 && p.HasBackward(s); s-- {
		switch {
		case s < len(p.Frozen) && p.Frozen[s]:
			lanes = append(lanes, Lane{Kind: schedule.I, Stage: s, Offset: offset})
		case split[s]:
			lanes = append(lanes, Lane{Kind: schedule.I, Stage: s, Offset: offset}, Lane{Kind: schedule.W, Stage: s, Offset: offset + lag()})
		default:
			lanes = append(lanes, Lane{Kind: schedule.B, Stage: s, Offset: offset})
		}
		offset += lag()
	}
	if rapid.IntRange(0, 3).Draw(t, "shuffle") == 0 {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rng.Shuffle(len(lanes), func(i, k int) { lanes[i], lanes[k] = lanes[k], lanes[i] })
	}

	group := rapid.IntRange(1, 3).Draw(t, "group")
	groups := rapid.IntRange(1, 40).Draw(t, "groups")
	p.Microbatches = group * groups
	down := rapid.Bool().Draw(t, "down")
	reversed := rapid.Bool().Draw(t, "reversed")
	inGroup := rapid.Permutation([]int{0, 1, 2}[:group]).Draw(t, "order in group")

	p.Programs = [][]schedule.Segment{Interleave(lanes, groups, group, down, func(lane, i int) int {
		if reversed && lanes[lane].Kind != schedule.F {
			i = group - 1 - i
		}
		return inGroup[i]
	})}
	return p, split
}

// DrawList draws a plan on one rank without repeats, in a random valid order of actions and
// microbatches.
func DrawList(t *rapid.T) (*schedule.Plan, []bool) {
	stages := rapid.IntRange(1, 4).Draw(t, "stages")
	p := &schedule.Plan{Name: "list", Placement: schedule.Looped(1, stages), Microbatches: rapid.IntRange(1, 12).Draw(t, "microbatches")}
	split := rapid.SliceOfN(rapid.Bool(), stages, stages).Draw(t, "split")
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	Shuffle(rng, p, Computations(p, func(stage, _ int) bool { return split[stage] }), func(schedule.Kind) bool { return false })
	return p, split
}

// DrawChunks draws a plan on one rank in which segments run chunks of microbatches of each kind and
// stage, ascending or descending. The chunks are in random order and partly interleaved, so sets of
// microbatches split and merge within segments. Many of these plans are invalid.
func DrawChunks(t *rapid.T) (*schedule.Plan, []bool) {
	stages := rapid.IntRange(1, 3).Draw(t, "stages")
	p := &schedule.Plan{Name: "chunks", Placement: schedule.Looped(1, stages), Microbatches: rapid.IntRange(8, 40).Draw(t, "microbatches")}
	split := make([]bool, stages)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))

	type chunk struct{ from, step, left int }
	type chunks struct {
		kind   schedule.Kind
		stage  int
		chunks []chunk
	}
	var lanes []chunks
	take := func(kind schedule.Kind, stage int) {
		cuts := []int{0, p.Microbatches}
		for range rng.IntN(3) {
			cuts = append(cuts, 1+rng.IntN(p.Microbatches-1))
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		l := chunks{kind: kind, stage: stage}
		for i := range len(cuts) - 1 {
			c := chunk{cuts[i], 1, cuts[i+1] - cuts[i]}
			if rng.IntN(3) == 0 {
				c.from, c.step = cuts[i+1]-1, -1
			}
			l.chunks = append(l.chunks, c)
		}
		if rng.IntN(2) == 0 {
			rng.Shuffle(len(l.chunks), func(i, k int) { l.chunks[i], l.chunks[k] = l.chunks[k], l.chunks[i] })
		}
		lanes = append(lanes, l)
	}
	for s := range stages {
		take(schedule.F, s)
	}
	for s := stages - 1; s >= 0; s-- {
		split[s] = rng.IntN(2) == 0
		if split[s] {
			take(schedule.I, s)
			take(schedule.W, s)
		} else {
			take(schedule.B, s)
		}
	}

	var program []schedule.Segment
	for len(lanes) > 0 {
		first := lanes[0].chunks[0]
		segment := schedule.Segment{Repeat: first.left, Stride: first.step}
		var with []int
		for i := range lanes {
			if c := lanes[i].chunks[0]; i == 0 || len(with) < 3 && c.step == first.step && rng.IntN(4) == 0 {
				with = append(with, i)
				segment.Repeat = min(segment.Repeat, c.left)
			}
		}
		if rng.IntN(3) == 0 {
			segment.Repeat = 1 + rng.IntN(segment.Repeat)
		}
		for _, i := range with {
			c := &lanes[i].chunks[0]
			segment.Body = append(segment.Body, schedule.NewAction(lanes[i].kind, lanes[i].stage, c.from))
			c.from, c.left = c.from+c.step*segment.Repeat, c.left-segment.Repeat
			if c.left == 0 {
				lanes[i].chunks = lanes[i].chunks[1:]
			}
		}
		lanes = slices.DeleteFunc(lanes, func(l chunks) bool { return len(l.chunks) == 0 })
		program = append(program, segment)
	}
	p.Programs = [][]schedule.Segment{program}
	return p, split
}
