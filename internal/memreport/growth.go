package memreport

import (
	"math"

	"github.com/weir-ml/weir/memory"
)

// Growth is what a rank's memory grows by, in bytes. The zero Growth is a level that
// stays.
type Growth struct {
	// PerMicrobatch is what each microbatch of a step adds, and Low and High the 99 %
	// interval of it.
	PerMicrobatch float64 `json:"per_microbatch"`
	Low           float64 `json:"low"`
	High          float64 `json:"high"`
	// PerStep is what each step leaves behind.
	PerStep float64 `json:"per_step"`
	// From says what it was found in: "books", the excess of the allocator's book over
	// the step's; "level", what is live; "" where nothing grows.
	From string `json:"from,omitempty"`
	// Class is the class that has risen most from the first record to the last, where the
	// log has classes.
	Class string `json:"class,omitempty"`
	// First is the first microbatch that grew; nil where nothing grows.
	First *First `json:"first,omitempty"`
}

// First is where growth begins.
type First struct {
	// Step is -1 where many steps were looked at as one.
	Step       int64 `json:"step"`
	Microbatch int   `json:"microbatch"`
	// Last is the last microbatch that it may be: a long step is looked at several
	// microbatches at a time.
	Last int `json:"last"`

	record   int64 // of the rank, -1 where many steps were looked at as one
	position int64 // within its step, -1 where it is not known
}

// Grows reports whether anything grows.
func (g *Growth) Grows() bool { return g.From != "" }

// growth returns what the rank's memory grows by. endStep has been called.
func (r *rank) growth() Growth {
	g := r.rises()
	if g.Grows() {
		most := int64(0)
		for class := range memory.NumClasses {
			if rise := r.lastClasses[class] - r.firstClasses[class]; rise > most {
				g.Class, most = memory.Class(class).String(), rise
			}
		}
	}
	return g
}

// rises says what rises, and from where on.
func (r *rank) rises() (g Growth) {
	steps, leaves := r.lows.rise(3)
	if leaves {
		g.From, g.PerStep = "level", steps.Median
	}
	if r.grew {
		return r.excessGrowth(g)
	}
	if within, ok := r.within.rise(1); ok {
		g.From = "level"
		g.PerMicrobatch, g.Low, g.High = within.Median, within.Low, within.High
		g.First = &First{Step: r.onlyStep(), Microbatch: int(within.from), Last: int(within.to), record: -1, position: within.from}
		if r.steps == 1 {
			g.First.record = within.from
		}
	} else if leaves { // each step leaves something, and its microbatches do not show it
		g.First = &First{Step: r.stepNumber(steps.from), record: -1, position: -1}
	}
	return g
}

// excessGrowth is growth that the books show: a fact.
func (r *rank) excessGrowth(g Growth) Growth {
	at := r.firstExcess
	g.From = "books"
	g.First = &First{at.Step, at.Microbatch, at.Microbatch, at.Record, r.firstExcessIn}
	if s, ok := r.excess.rise(1); ok {
		g.PerMicrobatch, g.Low, g.High = s.Median, s.Low, s.High
		return g
	}
	// Too few microbatches for a slope, or one that came and stayed.
	most := float64(r.excessMost) / float64(max(r.mostInStep-r.firstExcessIn, 1))
	g.PerMicrobatch, g.Low, g.High = most, most, most
	return g
}

// onlyStep returns the number of the step where the log has a single one, else -1.
func (r *rank) onlyStep() int64 {
	if r.steps == 1 {
		return r.first.Step
	}
	return -1
}

// stepNumber returns the number of a step by its place, as far as columns tell: steps
// are numbered one by one in most logs.
func (r *rank) stepNumber(index int64) int64 {
	spread := float64(r.last.Step-r.first.Step) / math.Max(float64(r.steps-1), 1)
	return r.first.Step + int64(math.Round(float64(index)*spread))
}
