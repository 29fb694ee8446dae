package runner

import (
	"context"
	"time"
)

// lane runs the transfers of stages between replicas on a goroutine of its own, one stage after the
// other. Its methods are for the goroutine of the rank.
type lane struct {
	transfer func(ctx context.Context, stage int) error

	queue   chan int        // stages; nil if the lane does not run
	done    chan struct{}   // closed when the goroutine ends
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
	if l.queue == nil {
		l.queue, l.done = make(chan int, len(l.over)), make(chan struct{})
		go l.run(ctx, l.queue, l.done)
	}
	l.pending[stage] = true
	l.queue <- stage
}

func (l *lane) run(ctx context.Context, queue <-chan int, done chan<- struct{}) {
	defer close(done)
	var failed error
	for stage := range queue {
		begun := time.Now()
		if failed == nil {
			failed = l.transfer(ctx, stage)
		}
		l.faults[stage] = failed
		l.busy += time.Since(begun)
		l.over[stage] <- struct{}{}
	}
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
		<-l.over[stage]
		l.waited += time.Since(begun)
	}
	l.pending[stage] = false
	return l.faults[stage]
}

// stop ends the goroutine when all transfers are over. If a step has failed, the transport has
// ended them.
func (l *lane) stop() {
	if l.queue == nil {
		return
	}
	close(l.queue)
	<-l.done
	l.queue = nil
	for s, pending := range l.pending {
		if pending {
			<-l.over[s]
			l.pending[s] = false
		}
	}
}
