package replicas

import (
	"context"
	"time"

	"github.com/weir-ml/weir/internal/engine/turns"
)

// lane runs transfers between replicas on its own goroutine, one stage at a time. All methods except
// run are called on the rank's goroutine.
type lane struct {
	transfer func(ctx context.Context, stage int) error

	turns    turns.Turns // nil outside of a simulation
	running  bool
	queue    chan int        // stages, followed by -1
	done     chan struct{}   // receives a token when the goroutine ends
	finished []chan struct{} // by stage: receives a token when its transfer ends
	errs     []error         // by stage: set before the token is sent
	pending  []bool          // by stage: its token has not been received
	// busy is the duration of the step's transfers, and waited is how long the rank has waited for
	// them.
	busy, waited time.Duration
}

func newLane(stages int, transfer func(ctx context.Context, stage int) error) *lane {
	l := &lane{transfer: transfer, finished: make([]chan struct{}, stages), errs: make([]error, stages), pending: make([]bool, stages)}
	for s := range l.finished {
		l.finished[s] = make(chan struct{}, 1)
	}
	return l
}

// add queues a stage's transfer. The first add of a step starts the goroutine.
func (l *lane) add(ctx context.Context, stage int) {
	if !l.running {
		l.running, l.queue, l.done = true, make(chan int, len(l.finished)+1), make(chan struct{}, 1)
		l.turns = turns.Of(ctx)
		turns.Go(l.turns, func() { l.run(ctx) })
	}
	l.pending[stage] = true
	l.queue <- stage
}

// run transfers the queued stages until stop is called. After an error it transfers no further
// stages.
func (l *lane) run(ctx context.Context) {
	var failed error
	for stage := turns.Receive(l.turns, l.queue); stage >= 0; stage = turns.Receive(l.turns, l.queue) {
		begun := time.Now()
		if failed == nil {
			failed = l.transfer(ctx, stage)
		}
		l.errs[stage] = failed
		l.busy += time.Since(begun)
		l.finished[stage] <- struct{}{}
	}
	l.done <- struct{}{}
}

// wait waits for a stage's transfer and returns its error. It returns nil immediately if there is no
// transfer, or if an earlier call already waited for it.
func (l *lane) wait(stage int) error {
	if !l.pending[stage] {
		return nil
	}
	select {
	case <-l.finished[stage]:
	default:
		begun := time.Now()
		turns.Receive(l.turns, l.finished[stage])
		l.waited += time.Since(begun)
	}
	l.pending[stage] = false
	return l.errs[stage]
}

// stop waits for all transfers and ends the goroutine. If the step has failed, the transport has
// already ended the transfers.
func (l *lane) stop() {
	if !l.running {
		return
	}
	l.queue <- -1
	turns.Receive(l.turns, l.done)
	l.running = false
	for s, pending := range l.pending {
		if pending {
			<-l.finished[s]
			l.pending[s] = false
		}
	}
}
