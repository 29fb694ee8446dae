package tcp

import (
	"slices"
	"time"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/transport"
)

// Runs records the step and the action that the rank runs.
func (e *Endpoint[T]) Runs(step int64, action schedule.Action) {
	e.step.Store(step)
	e.lastAction.Store(e.action.Load())
	e.action.Store(uint64(action))
	e.position.Add(1)
}

// Waited returns the time that this rank's calls have spent blocked since Begin.
func (e *Endpoint[T]) Waited() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waited
}

// Waits returns the times that this rank's calls have spent blocked since Join, indexed by the
// awaited rank. Waits for all ranks are not included.
func (e *Endpoint[T]) Waits() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.waits)
}

// Status returns the rank's step, its current and last action, and its wait, if it waits.
func (e *Endpoint[T]) Status() transport.RankStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := transport.RankStatus{Step: e.step.Load(), Last: schedule.Action(e.lastAction.Load()).WithDrop(0).WithJoin(false), Read: e.bytesRead.Load()}
	s.Rank, s.Action, s.Position = e.cfg.Rank, schedule.Action(e.action.Load()).WithDrop(0).WithJoin(false), e.position.Load()
	w := &e.wait
	if s.Waits = w.reason != waitNone; !s.Waits {
		if w := e.windows.Waiting(); w != nil { // another goroutine of the rank waits
			s.Waits, s.ForRank, s.For, s.Since = true, w.From, w.Tag.Sends(), time.Since(w.Since)
		}
		return s
	}
	s.For, s.ForRank, s.Since = w.action, w.peer, time.Since(w.since)
	return s
}

// Statuses returns the statuses of the job's ranks. On rank 0 they include every other rank that has sent a
// heartbeat, as of its last heartbeat. On other ranks Statuses returns only this rank's status.
func (e *Endpoint[T]) Statuses() []transport.RankStatus {
	all := []transport.RankStatus{e.Status()}
	if e.hub == nil {
		return all
	}
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	for _, m := range e.hub.ranks[1:] {
		if s := m.status; s.Rank >= 0 {
			s.Age = time.Since(m.lastBeat)
			all = append(all, s)
		}
	}
	return all
}
