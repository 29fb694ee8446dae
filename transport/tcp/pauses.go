package tcp

import (
	"fmt"
	"sync"
	"time"
)

// pauses notices when this process has not run for a while, because it or its host was suspended. Such
// a process has heard nothing from the other ranks, and may find that they have ended the job, but none
// of them is the cause.
type pauses struct {
	silence time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	due     time.Time     // when the timer fires next
	length  time.Duration // of the last pause
	ended   time.Time     // when the last pause had ended
}

func newPauses(silence time.Duration) *pauses {
	p := &pauses{silence: silence, due: time.Now().Add(silence / beats)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(silence/beats, p.tick)
	return p
}

func (p *pauses) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look(time.Now())
	if p.due = time.Now().Add(p.silence / beats); !p.stopped {
		p.timer.Reset(p.silence / beats)
	}
}

// look records a pause if the timer is late.
func (p *pauses) look(now time.Time) {
	if late := now.Sub(p.due); late > p.silence/2 && !p.stopped {
		p.length, p.ended = late, now
	}
}

// last returns the length of a pause that has ended less than Config.Silence ago and that took more than
// half of it, and 0 if there was none.
func (p *pauses) last() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.look(now); now.Sub(p.ended) < p.silence {
		return p.length
	}
	return 0
}

func (p *pauses) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.timer.Stop()
}

// lost returns the rank that is lost and the reason, if the control connection to the rank at the other
// end has ended with err: this rank itself, own, if its process has just been suspended.
func (p *pauses) lost(own, other int, err error) (rank int, why string) {
	if pause := p.last(); pause > 0 {
		return own, fmt.Sprintf("its process or its host was suspended for %v", pause.Round(100*time.Millisecond))
	}
	return other, reason(err, p.silence)
}
