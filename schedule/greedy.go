package schedule

import (
	"fmt"
	"slices"
)

// greedy returns the programs that come about when every rank, whenever it is free,
// runs a ready backward, or else a ready forward, each of the microbatch that is
// farthest along: the backward of its lowest ready stage, the forward of its highest.
// A forward takes one tick and a backward two, and what one rank has computed is there
// for the others at once.
//
// A rank of n stages has at most its cap in flight, microbatches counted stage by
// stage. The forward of its first stage begins only with n places free, that of the
// next one with n-1, that of the last one with one: so a rank is never full of what
// waits for a place on it.
//
// After a while the ranks do the same again with later microbatches. There the clock
// leaps to the last microbatches, and what it leaps over is one segment.
func greedy(p Params) ([][]Segment, error) {
	w := newWorkers(p)
	programs := make([][]Segment, p.Placement.Ranks)
	leapt := false
	past, ticks, patience := w.clone(), 0, 1 // a moment that may come again; after a while a later one
	for w.tick() {
		if w.written > maxBody {
			return nil, fmt.Errorf("%w: depth-first finds no order that repeats within %d actions of these %d stages: use fewer microbatches or stages, or another cap",
				ErrParams, maxBody, p.Placement.Stages())
		}
		if leapt {
			continue
		}
		if stride, again := w.again(&past); again {
			w.leap(&past, stride, programs)
			leapt = true
		} else if ticks++; ticks == patience {
			past, ticks, patience = w.clone(), 0, 2*patience
		}
	}
	for rank, list := range w.lists {
		programs[rank] = append(programs[rank], Fold(list)...)
	}
	return programs, nil
}

// workers are the ranks of a plan at work, at one moment.
type workers struct {
	stages, microbatches int
	on                   [][]int // stages by rank, highest first
	caps                 []int   // by rank

	counts  []int      // by stage four: forwards begun and done, backwards begun and done
	busy    []int      // by rank: ticks until it is free
	doing   []int      // by rank: which count grows then
	lists   [][]Action // by rank: what it has begun
	written int        // actions of all lists
}

// Where the counts of a stage are.
const (
	forwardsBegun = iota
	forwardsDone
	backwardsBegun
	backwardsDone
	countsOfStage
)

func newWorkers(p Params) workers {
	ranks, stages := p.Placement.Ranks, p.Placement.Stages()
	w := workers{
		stages: stages, microbatches: p.Microbatches, on: make([][]int, ranks), caps: make([]int, ranks),
		counts: make([]int, countsOfStage*stages), busy: make([]int, ranks), doing: make([]int, ranks), lists: make([][]Action, ranks),
	}
	for rank := range ranks {
		w.on[rank] = p.Placement.On(rank)
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

// clone returns a copy of the moment, for again and leap.
func (w *workers) clone() workers {
	past := *w
	past.counts, past.busy, past.lists = slices.Clone(w.counts), slices.Clone(w.busy), slices.Clone(w.lists)
	return past
}

// again reports whether a past moment has come again with later microbatches, and how
// much later they are.
func (w *workers) again(past *workers) (stride int, again bool) {
	stride = w.counts[0] - past.counts[0]
	if stride == 0 {
		return 0, false
	}
	for i, n := range w.counts {
		if n-past.counts[i] != stride {
			return 0, false
		}
	}
	return stride, slices.Equal(w.busy, past.busy) // the counts say what with
}

// leap lets what has happened since a past moment that came again happen as often as
// there are microbatches for it, and moves the lists to the programs.
func (w *workers) leap(past *workers, stride int, programs [][]Segment) {
	times := (w.microbatches - w.counts[0]) / stride
	if times == 0 {
		return
	}
	for rank, list := range w.lists {
		before := len(past.lists[rank])
		programs[rank] = Fold(list[:before])
		if before < len(list) {
			programs[rank] = append(programs[rank], Segment{slices.Clone(list[before:]), 1 + times, stride})
		}
		w.lists[rank] = nil
	}
	for i := range w.counts {
		w.counts[i] += times * stride
	}
}

// tick is the next moment: what ends now is done, and who is free begins what is
// ready. It reports whether anybody is at work then.
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

// begin lets a free rank begin what it runs next, if anything is ready.
func (w *workers) begin(rank int) {
	held, back := 0, -1
	for _, stage := range w.on[rank] {
		of := w.counts[countsOfStage*stage:]
		held += of[forwardsBegun] - of[backwardsDone]
		behind := of[forwardsDone] // of the last stage; of others the stage behind it
		if stage+1 < w.stages {
			behind = of[countsOfStage+backwardsDone]
		}
		if of[backwardsBegun] < behind {
			back = stage
		}
	}
	if back >= 0 {
		w.run(rank, back, B, 2)
		return
	}
	for places, stage := range w.on[rank] { // free places that are left for higher stages
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

// run lets a rank begin an action on the next microbatch of a stage.
func (w *workers) run(rank, stage int, kind Kind, ticks int) {
	begun := countsOfStage*stage + forwardsBegun
	if kind == B {
		begun = countsOfStage*stage + backwardsBegun
	}
	w.lists[rank] = append(w.lists[rank], Act(kind, stage, w.counts[begun]))
	w.counts[begun]++
	w.busy[rank], w.doing[rank] = ticks, begun+1
	w.written++
}
