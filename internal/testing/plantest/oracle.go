package plantest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// Cell is a stage and a microbatch, or a stage and a kind.
type Cell struct{ Stage, Mb int }

// oracle holds the expected result of the lifetime pass, by rank.
type oracle struct {
	Drops      [][]schedule.Drop // by rank and position
	Table      map[Cell]uint64   // by stage and kind: the parts whose lifetimes end at these actions
	Windows    []int
	Outgoing   []int
	Entries    []int
	PartlyRead bool // a part is read for some microbatches of a copy of the model, but not for all
	Uneven     bool // the parts of Table differ between microbatches
}

// NewOracle returns the expected result of the lifetime pass.
func NewOracle(p *schedule.Plan, facts []schedule.StageInfo) oracle {
	stages := p.Placement.Stages()
	copies := max(p.Placement.Copies, 1)
	depth := stages / copies
	o := oracle{Table: map[Cell]uint64{}, Windows: make([]int, stages), Outgoing: make([]int, stages)}
	for rank := range p.Programs {
		actions := slices.Collect(p.All(rank))
		drops := make([]schedule.Drop, len(actions))

		last := map[int]int{}             // by microbatch: the position of its last action
		lastOf := map[Cell]int{}          // by stage and microbatch
		born := map[Cell]int{}            // the position at which its input arrives on the rank
		lastRead := map[int]map[int]int{} // by part, by microbatch
		first := map[int]int{}            // by microbatch
		made := map[schedule.Action]int{} // by send: the position at which its buffer is allocated
		gone := map[schedule.Action]int{} // by send: the position of its wait
		for at, a := range actions {
			s, k, m := a.Stage(), a.Kind(), a.Microbatch()
			if !ofMicrobatch(a) {
				continue
			}
			last[m] = at
			if k.Compute() {
				lastOf[Cell{Stage: s, Mb: m}] = at
			}
			if _, ok := first[m]; !ok {
				first[m] = at
			}
			for part := range 64 {
				if facts[s].Reads[k]>>part&1 == 1 {
					if lastRead[part] == nil {
						lastRead[part] = map[int]int{}
					}
					lastRead[part][m] = at
				}
			}
			if _, ok := born[Cell{Stage: s, Mb: m}]; !ok { // at the receive, or at the forward
				born[Cell{Stage: s, Mb: m}] = at
			}
			if k == schedule.F && (s+1)%depth != 0 && p.Placement.Rank[s+1] == rank {
				born[Cell{Stage: s + 1, Mb: m}] = at
			}
			switch k {
			case schedule.F:
				made[schedule.NewAction(schedule.SendF, s, m)] = at
			case schedule.B, schedule.I:
				made[schedule.NewAction(schedule.SendB, s, m)] = at
			case schedule.WaitF:
				gone[schedule.NewAction(schedule.SendF, s, m)] = at
			case schedule.WaitB:
				gone[schedule.NewAction(schedule.SendB, s, m)] = at
			}
		}

		forward, backward := map[int]int{}, map[int]int{} // by stage: the last read of its copies of weights
		for at, a := range actions {
			s := a.Stage()
			back := a.Kind() == schedule.B || a.Kind() == schedule.I
			if a.Kind() == schedule.F || back && facts[s].Recomputes {
				forward[s] = at
			}
			if back {
				backward[s] = at
			}
		}
		for at, a := range actions {
			s, k, m := a.Stage(), a.Kind(), a.Microbatch()
			if !ofMicrobatch(a) {
				continue
			}
			d := &drops[at]
			if last, ok := forward[s]; ok && last == at && facts[s].Quantizes {
				*d |= schedule.DropForwardWeights
			}
			if last, ok := backward[s]; ok && last == at && facts[s].Quantizes {
				*d |= schedule.DropBackwardWeights
			}
			if last[m] == at {
				*d |= schedule.Retire
			}
			dies := uint64(0)
			for part, by := range lastRead {
				if n, ok := by[m]; ok && n == at {
					dies |= 1 << part
				}
			}
			if dies != 0 {
				*d |= schedule.DropParts
				here := Cell{Stage: s, Mb: int(k)}
				o.Uneven = o.Uneven || o.Table[here] != 0 && o.Table[here] != dies
				o.Table[here] = dies
			}
			backs := p.HasBackward(s)
			if k == schedule.F && s%depth != 0 {
				*d |= schedule.DropInput
			}
			if k == schedule.F && (s+1)%depth == 0 {
				*d |= schedule.DropOutput
			}
			if (k == schedule.B || k == schedule.I) && (s+1)%depth != 0 {
				*d |= schedule.DropGrad
			}
			if back := k == schedule.B || k == schedule.I; back && slices.Contains(actions[:at], schedule.NewAction(schedule.Reload, s, m)) {
				*d |= schedule.DropFar
			}
			if k == schedule.B || k == schedule.I || k == schedule.W || k == schedule.WaitOffload || k == schedule.F && !backs {
				*d |= schedule.DropSaved
			}
			if k == schedule.WaitF || k == schedule.WaitB {
				*d |= schedule.DropSent
			}
		}
		o.Drops = append(o.Drops, drops)

		entries := 1
		for c := range copies {
			lo, hi := p.Span(c * depth)
			for _, by := range lastRead {
				n := 0
				for m := range by {
					if m >= lo && m < hi {
						n++
					}
				}
				o.PartlyRead = o.PartlyRead || n != 0 && n != hi-lo
			}
			entries = max(entries, widest(len(actions), p.Microbatches, func(m int) (int, int, bool) {
				end, held := 0, false
				for _, by := range lastRead {
					if at, ok := by[m]; ok {
						end, held = max(end, at), true
					}
				}
				return first[m], end, held && m >= lo && m < hi
			}))
		}
		o.Entries = append(o.Entries, entries)
		for s := range stages {
			if p.Placement.Rank[s] != rank {
				continue
			}
			o.Windows[s] = widest(len(actions), p.Microbatches, func(m int) (int, int, bool) {
				from, ok := born[Cell{Stage: s, Mb: m}]
				return from, lastOf[Cell{Stage: s, Mb: m}], ok
			})
			for _, send := range []schedule.Kind{schedule.SendF, schedule.SendB} {
				o.Outgoing[s] = max(o.Outgoing[s], widest(len(actions), p.Microbatches, func(m int) (int, int, bool) {
					end, sent := gone[schedule.NewAction(send, s, m)]
					return made[schedule.NewAction(send, s, m)], end, sent
				}))
			}
		}
	}
	return o
}

// ofMicrobatch reports whether an action has a microbatch.
func ofMicrobatch(a schedule.Action) bool {
	switch a.Kind() {
	case schedule.Unshard, schedule.Reshard, schedule.ReduceGrad, schedule.ZeroGrad, schedule.WaitReduce, schedule.Quantize:
		return false
	}
	return true
}

// widest returns the maximum, over all positions, of the number of microbatches from the lowest to
// the highest live one. The function life returns the positions between which a microbatch is live.
func widest(actions, microbatches int, life func(m int) (int, int, bool)) int {
	low := slices.Repeat([]int{microbatches}, actions)
	high := slices.Repeat([]int{-1}, actions)
	for m := range microbatches {
		from, to, ok := life(m)
		for at := from; ok && at <= to; at++ {
			low[at], high[at] = min(low[at], m), max(high[at], m)
		}
	}
	width := 0
	for at := range low {
		width = max(width, high[at]-low[at]+1)
	}
	return width
}

// CheckLifetimes compares the lifetime pass with the oracle and checks its plan. It returns nil if a
// plan cannot express the facts.
func CheckLifetimes(t require.TestingT, p *schedule.Plan, facts []schedule.StageInfo) *schedule.Plan {
	p = Quantized(t, p, facts)
	want := NewOracle(p, facts)
	got, err := lower.Lifetimes(p, facts, Parts)
	if want.Uneven || want.PartlyRead {
		require.ErrorIs(t, err, schedule.ErrStageInfo)
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, want.Windows, got.StageWindows)
	require.Equal(t, want.Entries, got.EntryWindows)
	if got.SendWindows != nil {
		require.Equal(t, want.Outgoing, got.SendWindows)
	} else {
		require.Zero(t, slices.Max(want.Outgoing))
	}
	for rank := range p.Programs {
		bare, marked := slices.Collect(p.All(rank)), slices.Collect(got.All(rank))
		require.Len(t, marked, len(bare))
		for i, a := range marked {
			require.Equal(t, bare[i].WithDrop(want.Drops[rank][i]), a, "rank %d, action %d: %v~%v", rank, i, a, a.Drop())
		}
	}
	require.NoError(t, check.Plan(got))

	// The pass declares minimal bounds.
	for code, of := range map[check.Code]func(p *schedule.Plan) *[]int{
		check.WindowExceeded:   func(p *schedule.Plan) *[]int { return &p.StageWindows },
		check.OutgoingExceeded: func(p *schedule.Plan) *[]int { return &p.SendWindows },
		check.EntriesExceeded:  func(p *schedule.Plan) *[]int { return &p.EntryWindows },
	} {
		for i, n := range *of(got) {
			if n == 0 && code == check.OutgoingExceeded {
				continue
			}
			less := *got
			list := of(&less)
			*list = slices.Clone(*list)
			(*list)[i]--
			RequireCodes(t, check.Plan(&less), code)
		}
	}
	return got
}
