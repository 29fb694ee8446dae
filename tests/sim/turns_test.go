package sim

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing/synctest"
	"time"
)

// policy determines how the next rank is chosen among those that could continue.
type policy int

const (
	uniform  policy = iota
	sticky          // usually the current rank
	delaying        // any, but occasionally one is delayed until no other rank can continue
	starving        // any except one rank, which changes occasionally and continues only if no other one can
	numPolicies
)

// clerk schedules the ranks of a step, and the goroutines that they start (internal/engine/turns.Turns).
type clerk struct {
	random  *rand.Rand
	policy  policy
	starved int
	seats   []seat // of the ranks, and then of their goroutines
	ranks   int
	current int    // the seat that is running, or -1
	turns   int    // number of turns given
	trace   uint64 // of all turns
	joining sync.Mutex
}

// seat is the waiting state of a rank, or of a goroutine.
type seat struct {
	turn   chan struct{}
	waits  bool
	ready  func() bool // nil means ready immediately
	alarm  time.Time   // when it may become ready without another rank; zero means never
	picked bool        // scratch
	taken  bool        // by a goroutine
}

// newClerk returns a clerk for a number of ranks, which may start a number of goroutines. It
// belongs to the bubble that creates it.
func newClerk(seed uint64, p policy, ranks, goroutines int) *clerk {
	c := &clerk{random: rand.New(rand.NewPCG(seed, 1)), policy: p, seats: make([]seat, ranks+goroutines), ranks: ranks, current: -1, trace: 14695981039346656037}
	for i := range c.seats {
		c.seats[i].turn = make(chan struct{}, 1)
	}
	return c
}

// Begin joins a rank.
func (c *clerk) Begin(rank int) {
	c.joining.Lock() // ranks join concurrently
	c.seats[rank].waits, c.seats[rank].ready = true, nil
	c.joining.Unlock()
	<-c.seats[rank].turn
}

// Go starts a goroutine, whose first turn comes later.
func (c *clerk) Go(f func()) {
	n := c.ranks
	for c.seats[n].taken {
		n++
	}
	s := &c.seats[n]
	s.taken, s.waits, s.ready = true, true, nil
	go func() {
		<-s.turn
		f()
		s.taken = false
		c.next()
	}()
}

// Wait ends the turn of the current rank.
func (c *clerk) Wait(ready func() bool) {
	rank := c.current
	s := &c.seats[rank]
	s.waits, s.ready = true, ready
	if c.next() != rank {
		<-s.turn
	}
}

// sleep delays the current rank for some time.
func (c *clerk) sleep(d time.Duration) {
	alarm := time.Now().Add(d)
	c.seats[c.current].alarm = alarm
	c.Wait(func() bool { return !time.Now().Before(alarm) })
}

// pause ends the turn of the current rank, which could continue.
func (c *clerk) pause() {
	if c.policy == delaying && c.random.IntN(16) == 0 {
		c.sleep(time.Duration(1 + c.random.IntN(1e6)))
		return
	}
	if c.policy == sticky && c.random.IntN(8) != 0 { // the rank keeps its turn
		c.count(c.current)
		return
	}
	c.Wait(nil)
}

// count records that a rank gets the turn.
func (c *clerk) count(rank int) {
	c.turns++
	c.trace = (c.trace ^ uint64(rank+1)) * 1099511628211
}

// next gives the turn to a rank that can continue, and returns it, or -1.
func (c *clerk) next() int {
	last, can := c.current, 0
	c.current = -1
	for i := range c.seats {
		s := &c.seats[i]
		if s.picked = s.waits && (s.ready == nil || s.ready()); s.picked {
			can++
		}
	}
	if can == 0 {
		return -1
	}
	if c.policy == starving && can > 1 {
		if c.random.IntN(64) == 0 {
			c.starved = c.random.IntN(len(c.seats))
		}
		if s := &c.seats[c.starved]; s.picked {
			s.picked = false
			can--
		}
	}
	rank := 0
	for n := c.random.IntN(can); n > 0 || !c.seats[rank].picked; rank++ {
		if c.seats[rank].picked {
			n--
		}
	}
	s := &c.seats[rank]
	s.waits, s.ready, s.alarm = false, nil, time.Time{}
	c.count(rank)
	if c.current = rank; rank != last {
		s.turn <- struct{}{}
	}
	return rank
}

// errStuck is a violation: ranks wait, and no event will wake them.
var errStuck = errors.New("deadlock: no rank can continue, and no timer is pending")

// serve gives turns until done is closed. The bubble's clock advances, by the smallest amount, only while
// no rank runs. Therefore a sleep ends when the current rank waits for ready or has ended.
func (c *clerk) serve(done <-chan struct{}) error {
	for hours := 0; hours < 3; {
		time.Sleep(time.Nanosecond)
		synctest.Wait() // for the race detector, which does not see what the sleep waited for
		select {
		case <-done:
			return nil
		default:
		}
		c.current = -1
		if c.next() >= 0 {
			hours = 0
			continue
		}
		until := time.Hour // the stall detection may run
		for i := range c.seats {
			if alarm := c.seats[i].alarm; !alarm.IsZero() {
				until = min(until, time.Until(alarm))
			}
		}
		if until == time.Hour {
			hours++
		}
		time.Sleep(max(until, 1))
	}
	return errStuck
}
