package schedule

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// greedy returns the programs that result if each rank, whenever it is free, runs a ready backward,
// or a ready forward if no backward is ready. A rank chooses the microbatch that is farthest along:
// the backward of its lowest ready stage, or the forward of its highest ready stage. A forward takes
// one tick and a backward takes two. A result is immediately available on other ranks.
//
// A rank with n stages has at most cap microbatches in flight, counting each stage separately. The
// forward of its first stage begins only if n places are free, the forward of its next stage only if
// n-1 are free, and so on. Thus a rank never fills up with microbatches that wait for a place on that
// rank.
//
// Eventually the ranks repeat their actions with later microbatches. greedy skips these periods (see
// package repeats), and they become one segment per rank. It returns an error once it has written more
// than a quarter of maxBody actions one by one.
func greedy(p Params) ([][]Segment, error) {
	w := newWorkers(p)
	for w.tick() {
		if w.written > maxBody/4 {
			return nil, diagnostic.Errorf(ErrParams, "depth-first finds no order that repeats within %d actions of these %d stages: use fewer microbatches or stages, or another cap",
				maxBody/4, p.Placement.Stages())
		}
		if w.skipped {
			continue // only the last microbatches remain
		}
		if n := w.engine.Look(w); n == 0 && w.engine.Began() {
			for rank := range w.lists {
				w.began[rank] = w.lists[rank].Len()
			}
		}
	}
	programs := make([][]Segment, p.Placement.Ranks)
	for rank := range programs {
		programs[rank] = w.lists[rank].Program()
	}
	return programs, nil
}

// workers is the configuration of all ranks. It does not use the machine of package passes, because
// that machine runs a given program, whereas workers chooses the actions.
type workers struct {
	engine               repeats.Engine
	stages, microbatches int
	on                   [][]int // by rank: the rank's stages, highest first
	caps                 []int   // by rank: the maximum number of microbatches in flight

	counts  []int     // four per stage: forwards begun and done, backwards begun and done
	busy    []int     // by rank: the number of ticks until the rank is free
	doing   []int     // by rank: the index in counts of the count that increases when the rank becomes free
	lists   []Builder // by rank: the actions that the rank has begun
	began   []int64   // by rank: the length of the rank's list when the period began
	written int       // the number of actions in all lists, excluding skipped periods
	skipped bool      // periods have been skipped
}

// The counts of each stage.
const (
	forwardsBegun = iota
	forwardsDone
	backwardsBegun
	backwardsDone
	countsOfStage
)

func newWorkers(p Params) *workers {
	ranks, stages := p.Placement.Ranks, p.Placement.Stages()
	w := &workers{
		engine: repeats.NewEngine(&repeats.Sets{}), stages: stages, microbatches: p.Microbatches, on: p.Placement.byRank(), caps: make([]int, ranks),
		counts: make([]int, countsOfStage*stages), busy: make([]int, ranks), doing: make([]int, ranks), lists: make([]Builder, ranks),
		began: make([]int64, ranks),
	}
	for rank := range ranks {
		if len(w.on[rank]) == 0 {
			continue
		}
		w.caps[rank] = stages - w.on[rank][0]
		if p.Cap > 0 {
			w.caps[rank] = min(p.Cap, p.Microbatches) * len(w.on[rank])
		}
		slices.Reverse(w.on[rank])
	}
	return w
}

// State adds the configuration: the number of ticks for which each rank remains busy, and the counts, which
// determine the action that the rank is running.
func (w *workers) State(s *repeats.State) {
	for _, ticks := range w.busy {
		if !s.Fixed(int64(ticks)) {
			return
		}
	}
	for _, n := range w.counts {
		if !s.Moving(int64(n)) {
			return
		}
	}
}

// Moves returns the number of microbatches by which the stages have advanced, and how many more times they can advance
// by that number. It returns zeros if the stages have not advanced, or by different numbers.
func (w *workers) Moves(by []int64) (stride, most int64) {
	stride = by[0]
	if stride == 0 || slices.ContainsFunc(by, func(n int64) bool { return n != stride }) {
		return 0, 0
	}
	return stride, int64(w.microbatches-w.counts[0]) / stride
}

// Skip repeats the actions of the period n more times.
func (w *workers) Skip(n int64, by []int64) {
	w.skipped = true
	for rank := range w.lists {
		w.lists[rank].Repeat(w.began[rank], int(n), int(by[0]))
	}
	for i := range w.counts {
		w.counts[i] += int(n * by[0])
	}
}

// tick advances the time by one tick: actions end, and free ranks begin ready actions. It reports
// whether any rank is busy afterwards.
func (w *workers) tick() (working bool) {
	for rank := range w.busy {
		if w.busy[rank] == 0 {
			continue
		}
		if w.busy[rank]--; w.busy[rank] == 0 {
			w.counts[w.doing[rank]]++
		}
	}
	for rank := range w.busy {
		if w.busy[rank] == 0 {
			w.begin(rank)
		}
		working = working || w.busy[rank] > 0
	}
	return working
}

// begin starts the next action of a free rank, if one is ready.
func (w *workers) begin(rank int) {
	held, back := 0, -1
	for _, stage := range w.on[rank] {
		of := w.counts[countsOfStage*stage:]
		held += of[forwardsBegun] - of[backwardsDone]
		behind := of[forwardsDone] // the last stage's backward follows its own forward
		if stage+1 < w.stages {
			behind = of[countsOfStage+backwardsDone] // other backwards follow the next stage's backward
		}
		if of[backwardsBegun] < behind {
			back = stage
		}
	}
	if back >= 0 {
		w.run(rank, back, B, 2)
		return
	}
	for places, stage := range w.on[rank] { // places is the number of free places reserved for higher stages
		at := countsOfStage * stage
		before := w.microbatches
		if stage > 0 {
			before = w.counts[at-countsOfStage+forwardsDone]
		}
		if w.counts[at+forwardsBegun] < before && held+places < w.caps[rank] {
			w.run(rank, stage, F, 1)
			return
		}
	}
}

// run starts an action of a rank on the next microbatch of a stage.
func (w *workers) run(rank, stage int, kind Kind, ticks int) {
	begun := countsOfStage*stage + forwardsBegun
	if kind == B {
		begun = countsOfStage*stage + backwardsBegun
	}
	w.lists[rank].Append(NewAction(kind, stage, w.counts[begun]))
	w.counts[begun]++
	w.busy[rank], w.doing[rank] = ticks, begun+1
	w.written++
}
