package local

import (
	"slices"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/waitgraph"
	"github.com/weir-ml/weir/transport"
)

// Statuses returns the current statuses of all ranks. It may be called from any goroutine.
func (l *Links[T]) Statuses() (all []transport.RankStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rank := range l.ends {
		all = append(all, l.status(rank))
	}
	return all
}

// status returns the current status of a rank.
func (l *Links[T]) status(rank int) transport.RankStatus {
	e := &l.ends[rank]
	w := &e.wait
	s := transport.RankStatus{Step: e.step.Load(), Last: schedule.Action(e.lastAction.Load()).WithDrop(0).WithJoin(false)}
	s.Rank, s.Action = rank, schedule.Action(e.action.Load()).WithDrop(0).WithJoin(false)
	s.ForRank = l.waitsFor(rank)
	if s.Waits = s.ForRank >= 0; !s.Waits {
		if w := e.windows.Waiting(); w != nil { // another goroutine of the rank waits
			s.Waits, s.ForRank, s.For, s.Position, s.Since = true, w.From, w.Tag.Sends(), e.position.Load(), time.Since(w.Since)
		}
		return s
	}
	s.Position, s.Since = e.position.Load(), time.Since(w.since)
	switch w.reason {
	case waitRoom:
		s.For = w.link.First().Tag.Receives()
	case waitReceipt:
		s.For = w.tag.Receives()
	case waitMessage:
		s.For = w.tag.Sends()
	}
	return s
}

// waitsFor returns the rank for which a rank waits, the lowest if there are several, or -1 if it
// does not wait, or waits in Begin or in Abort.
func (l *Links[T]) waitsFor(rank int) int {
	e := &l.ends[rank]
	w := &e.wait
	if l.waitOver(e, w) { // the rank has not woken up yet
		return -1
	}
	switch w.reason {
	case waitRoom, waitReceipt:
		return w.link.to
	case waitMessage:
		return w.link.from
	case waitAll:
		return slices.IndexFunc(l.all, func(data []byte) bool { return data == nil })
	}
	return -1
}

// findDeadlock ends the step if the wait that a rank is beginning completes a deadlock: a cycle of
// waiting ranks, or a chain of them that ends at a rank in Exchange, which runs no further actions.
func (l *Links[T]) findDeadlock(e *Endpoint[T]) {
	if e.wait.reason == waitAll {
		for rank := range l.ends {
			if l.ends[rank].wait.reason != waitAll && l.waitsFor(rank) == e.rank {
				l.endStalled(0)
			}
		}
		return
	}
	for rank := l.waitsFor(e.rank); rank >= 0; rank = l.waitsFor(rank) {
		if rank == e.rank || l.ends[rank].wait.reason == waitAll {
			l.endStalled(0)
			return
		}
	}
}

// endStalled ends the step because of a deadlock, or because no rank has made progress during the
// given time.
func (l *Links[T]) endStalled(still time.Duration) {
	err := &transport.StallError{IdleFor: still}
	var waiting []waitgraph.Waiting
	for rank := range l.ends {
		s := l.status(rank)
		err.Ranks = append(err.Ranks, s)
		if reason := l.ends[rank].wait.reason; reason != waitNone && reason != waitAll && s.Waits {
			waiting = append(waiting, s.Waiting)
		}
	}
	if still == 0 {
		err.WaitChain = waitgraph.FindCycle(waiting)
	}
	l.abort(err)
}

// watch checks periodically whether the ranks make progress. It is active while a rank waits.
type watch struct {
	timer *time.Timer
	on    bool
	moves uint64        // number of sends, receipts, and reads and withdrawals of exposed memory
	seen  []uint64      // moves and each rank's action, as of the last check
	still time.Duration // how long there has been no progress
}

// checksPerStall is the number of checks during the stall timeout.
const checksPerStall = 4

// keepWatch starts the watch if it is not active.
func (l *Links[T]) keepWatch() {
	w := &l.watch
	switch {
	case w.on || l.cfg.Stall < 0:
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(l.cfg.Stall/checksPerStall, l.checkStall)
	default:
		w.timer.Reset(l.cfg.Stall / checksPerStall)
	}
	w.on, w.still = true, 0
	l.moved()
}

// checkStall ends the step if a rank waits and the ranks have made no progress for Config.Stall.
func (l *Links[T]) checkStall() {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &l.watch
	waiting := false
	for rank := range l.ends {
		waiting = waiting || l.waitsFor(rank) >= 0 || l.ends[rank].windows.Waiting() != nil
	}
	if w.on = waiting && !l.closed; !w.on {
		return
	}
	w.still += l.cfg.Stall / checksPerStall
	if l.moved() {
		w.still = 0
	}
	if w.still >= checksPerStall*(l.cfg.Stall/checksPerStall) {
		l.endStalled(w.still)
		w.on = false
		return
	}
	w.timer.Reset(l.cfg.Stall / checksPerStall)
}

// moved reports whether watch.moves or a rank's current action has changed since the last call.
func (l *Links[T]) moved() bool {
	w := &l.watch
	if w.seen == nil {
		w.seen = make([]uint64, 1+len(l.ends))
	}
	moved := w.seen[0] != w.moves
	w.seen[0] = w.moves
	for rank := range l.ends {
		runs := l.ends[rank].action.Load()
		moved = moved || w.seen[1+rank] != runs
		w.seen[1+rank] = runs
	}
	return moved
}
