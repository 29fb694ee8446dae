package runner

import (
	"context"
	"time"

	"github.com/weir-ml/weir/internal/turns"
)

// lane runs the transfers of stages between replicas on a goroutine of its own, one stage after the
// other. Its methods are for the goroutine of the rank.
type lane struct {
	transfer func(ctx context.Context, stage int) error

	turns   turns.Turns // nil outside of a simulation
	running bool
	queue   chan int        // stages, and -1 at the end
	done    chan struct{}   // a token when the goroutine ends
	over    []chan struct{} // by stage: a token when its transfer is over
	faults  []error         // by stage, set before the token
	pending []bool          // by stage: its token has not been taken
	// busy is how long the transfers of the step took, and waited how long the rank waited for them.
	busy, waited time.Duration
}

func newLane(stages int, transfer func(ctx context.Context, stage int) error) *lane {
	l := &lane{transfer: transfer, over: make([]chan struct{}, stages), faults: make([]error, stages), pending: make([]bool, stages)}
	for s := range l.over {
		l.over[s] = make(chan struct{}, 1)
	}
	return l
}

// add begins the transfer of a stage, after those that were added before.
func (l *lane) add(ctx context.Context, stage int) {
	if !l.running {
		l.running, l.queue, l.done = true, make(chan int, len(l.over)+1), make(chan struct{}, 1)
		l.turns = turns.Of(ctx)
		turns.Go(l.turns, func() { l.run(ctx) })
	}
	l.pending[stage] = true
	l.queue <- stage
}

func (l *lane) run(ctx context.Context) {
	var failed error
	for stage := turns.Receive(l.turns, l.queue); stage >= 0; stage = turns.Receive(l.turns, l.queue) {
		begun := time.Now()
		if failed == nil {
			failed = l.transfer(ctx, stage)
		}
		l.faults[stage] = failed
		l.busy += time.Since(begun)
		l.over[stage] <- struct{}{}
	}
	l.done <- struct{}{}
}

// wait returns when the transfer of a stage is over, with its error. It returns at once if it has
// been waited for.
func (l *lane) wait(stage int) error {
	if !l.pending[stage] {
		return nil
	}
	select {
	case <-l.over[stage]:
	default:
		begun := time.Now()
		turns.Receive(l.turns, l.over[stage])
		l.waited += time.Since(begun)
	}
	l.pending[stage] = false
	return l.faults[stage]
}

// stop ends the goroutine when all transfers are over. If a step has failed, the transport has
// ended them.
func (l *lane) stop() {
	if !l.running {
		return
	}
	l.queue <- -1
	turns.Receive(l.turns, l.done)
	l.running = false
	for s, pending := range l.pending {
		if pending {
			<-l.over[s]
			l.pending[s] = false
		}
	}
}
