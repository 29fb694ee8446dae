package tcp

import (
	"fmt"
	"sync"
	"time"
)

// pauses notices when this process has not run for a while, because it or its host was suspended. Such a
// process has heard nothing from the other ranks, which may have ended the job meanwhile, but none of them is
// the cause.
type pauses struct {
	silence time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
	due     time.Time     // when the timer fires next
	length  time.Duration // of the last pause
	ended   time.Time     // when the end of the last pause was noticed
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

// look records a pause if the timer is late by more than half of Config.Silence.
func (p *pauses) look(now time.Time) {
	if late := now.Sub(p.due); late > p.silence/2 && !p.stopped {
		p.length, p.ended = late, now
	}
}

// last returns the length of the last pause if it was longer than half of Config.Silence and ended less than
// Config.Silence ago. Otherwise it returns 0.
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

// lost is called when the control connection between rank own and rank other has ended with err. It returns the
// rank that counts as lost, and the reason: own if its process has just been suspended, and other otherwise.
func (p *pauses) lost(own, other int, err error) (rank int, why string) {
	if pause := p.last(); pause > 0 {
		return own, fmt.Sprintf("its process or its host was suspended for %v", pause.Round(100*time.Millisecond))
	}
	return other, reason(err, p.silence)
}
