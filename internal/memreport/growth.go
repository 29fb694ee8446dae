package memreport

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/weir-ml/weir/memory"
)

// Growth describes the growth of a rank's memory, in bytes. The zero Growth means that nothing
// grows.
type Growth struct {
	// PerMicrobatch is the growth with each microbatch of a step. Low and High are its 99 %
	// confidence interval, or equal to it if there are too few records for one.
	PerMicrobatch float64 `json:"per_microbatch"`
	Low           float64 `json:"low"`
	High          float64 `json:"high"`
	// PerStep is the growth that remains after each step.
	PerStep float64 `json:"per_step"`
	// From is the source that shows the growth: "books" for the excess of the allocator's book over the
	// step's, "level" for the live bytes, or "" if nothing grows.
	From string `json:"from,omitempty"`
	// Still reports whether the last quarter of the log grows as well.
	Still bool `json:"still,omitempty"`
	// Unclear is set if the log is too short to distinguish growth from chance: the level ends
	// higher than it began, by PerMicrobatch or PerStep, but does not count as growing.
	Unclear bool `json:"inconclusive,omitempty"`
	// Class is the class that rose most from the first record to the last, if the log breaks
	// memory down by class.
	Class string `json:"class,omitempty"`
	// Leak is the call of a stage that leaked most, if the log names it.
	Leak *Leak `json:"leak,omitempty"`
	// First is the first microbatch that grew; nil if nothing grows.
	First *First `json:"first,omitempty"`

	late        *lateRise // nil unless the rise begins after the first step
	leaves      int64     // the index of the first step that leaves bytes behind
	perPosition float64   // the growth with each position of the figure within a step
}

// Leak names a call of a stage.
type Leak struct {
	Stage int    `json:"stage"`
	Name  string `json:"name"` // of the stage
	Call  string `json:"call"` // the kind of the action in letters
	Class string `json:"class"`
	Bytes int64  `json:"bytes"` // that the call leaked
}

// First locates the start of the growth.
type First struct {
	Step       int64 `json:"step"`
	Microbatch int   `json:"microbatch"`
	// LastStep and Last are the latest step and microbatch at which growth may have started: in a long log,
	// several microbatches share a column.
	LastStep int64 `json:"last_step"`
	Last     int   `json:"last"`

	position int64 // in its step, or -1 if unknown
	every    bool  // every step grows and releases its growth at its end
}

// Grows reports whether anything grows.
func (g *Growth) Grows() bool { return g.From != "" }

// growth returns the growth of the rank's memory.
func (r *rankTotals) growth() Growth {
	g := r.findGrowth()
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

// findGrowth returns the first verdict that applies. The books come first because they are exact. A late rise
// precedes a rise in all steps, because the late rise raises the mean of all steps as well. Growth from step to
// step comes after both, because growth within steps that is never released causes it. Each verdict adds to the
// growth from step to step, if there is any. A log is inconclusive only if nothing grows.
func (r *rankTotals) findGrowth() Growth {
	left := r.growthLeft()
	for _, verdict := range []func(left Growth) (Growth, bool){r.excessGrowth, r.lateGrowth, r.growthInStep} {
		if g, ok := verdict(left); ok {
			return g
		}
	}
	if left.Grows() {
		return left
	}
	if rate, ok := r.inconclusiveSteps(points(r.lowest(), maxPoints)); ok {
		return Growth{Unclear: true, PerStep: rounded(rate)}
	}
	if rate, ok := r.inconclusiveInStep(); ok {
		g := Growth{Unclear: true}
		g.setRate(slope{Median: rate}, r.every)
		return g
	}
	return Growth{}
}

// growthLeft returns the growth that remains after each step. It begins at an unknown position in a step.
func (r *rankTotals) growthLeft() Growth {
	lows := r.lowest()
	steps, ok := riseOf(lows, halvesOfLog)
	if !ok {
		return Growth{}
	}
	x, y := quarter(points(lows, maxPoints))
	return Growth{
		From: "level", PerStep: rounded(steps.Median), Still: continues(x, y, steps.Median), leaves: steps.from,
		First: &First{Step: r.stepNumber(steps.from), LastStep: r.stepNumber(steps.to), position: -1},
	}
}

// lateGrowth returns the growth within steps that begins after the first step.
func (r *rankTotals) lateGrowth(g Growth) (Growth, bool) {
	late, ok := r.blocks.lateRise()
	if !ok {
		return g, false
	}
	g.From, g.Still, g.late = "level", r.growsAtEnd(late.block, late.Median), &late
	g.setRate(late.slope, r.every)
	g.First = r.firstOf(late.rise)
	g.First.Step, g.First.LastStep = late.first, late.last
	return g, true
}

// growthInStep returns the growth within every step, if the last half of the log still shows it.
func (r *rankTotals) growthInStep(g Growth) (Growth, bool) {
	inStep, ok := riseOf(r.stepProfile.list, halvesOfStep)
	if !ok {
		return g, false
	}
	if x, y := r.lastHalf(); !continues(x, y, inStep.Median) {
		return g, false
	}
	first := r.firstOf(inStep)
	first.Step, first.LastStep, first.every = r.first.Step, r.first.Step, r.totals.Steps > 1 && !g.Grows()
	g.From, g.Still, g.First = "level", r.growsAtEnd(0, inStep.Median), first
	g.setRate(inStep.slope, r.every)
	return g, true
}

// lastHalf returns the levels within a step, by position, in the last half of the log.
func (r *rankTotals) lastHalf() (x, y []float64) {
	n := len(r.blocks.list)
	return points(r.blocks.joined(n/2, n), maxPoints)
}

// firstOf returns the microbatches at which a rise within a step may begin. In a log of every n-th record, the
// growth may begin at any microbatch after the last record that does not show it.
func (r *rankTotals) firstOf(rise rise) *First {
	from, every := int(rise.from), r.every
	return &First{Microbatch: max(from-1, 0)*every + min(from, 1), Last: int(rise.to) * every, position: rise.from}
}

// inconclusiveSteps reports whether the lowest levels of the steps end higher than they began, though chance
// may explain this. In a log of few steps in the minimal form, a rise in only the last step may be a leak after
// a warm-up, whatever the earlier rise was. The rate is then that of the last half.
func (r *rankTotals) inconclusiveSteps(x, y []float64) (rate float64, ok bool) {
	end := len(y) - 1
	half := end / 2
	rate, ok = inconclusive(x, y)
	if r.minimal < r.totals.Records || len(y) >= minPoints || end < 1 || ok && end > 2 {
		return rate, ok
	}
	if y[end] <= y[half] || half > 0 && slices.Min(y[half:]) < slices.Max(y[:half]) {
		return 0, false
	}
	return (y[end] - y[half]) / (x[end] - x[half]), true
}

// inconclusiveInStep reports whether the last half of the log may rise within steps, though chance may explain
// this, and at no less than half the rate of the whole log. The rate is per record.
func (r *rankTotals) inconclusiveInStep() (rate float64, ok bool) {
	x, y := r.lastHalf()
	rate, ok = inconclusive(x, y)
	return rate, ok && fit(x, y).Median >= fit(points(r.stepProfile.list, maxPoints)).Median/2
}

// growsAtEnd reports whether a rise within steps, which begins at the given block, continues in the
// last quarter of the log.
func (r *rankTotals) growsAtEnd(from int, rate float64) bool {
	n := len(r.blocks.list)
	x, y := points(r.blocks.joined(max(n-max(n/4, 1), from), n), maxPoints)
	if n == 1 {
		x, y = quarter(x, y)
	}
	return continues(x, y, rate)
}

// excessGrowth returns the growth that the books show.
func (r *rankTotals) excessGrowth(g Growth) (Growth, bool) {
	if !r.grew {
		return g, false
	}
	at := r.firstExcess
	if len(r.leaks) > 0 {
		most := slices.MaxFunc(slices.Collect(maps.Keys(r.leaks)), func(a, b memory.Leak) int {
			return cmp.Or(cmp.Compare(r.leaks[a], r.leaks[b]), cmp.Compare(b.Stage, a.Stage), cmp.Compare(b.Call, a.Call))
		})
		g.Leak = &Leak{most.Stage, most.Name, most.Call, most.Class.String(), r.leaks[most]}
	}
	if r.left > 0 && r.leaking > 0 {
		g.PerStep = rounded(float64(r.left) / float64(r.leaking))
	}
	g.From, g.Still = "books", 4*(r.totals.Records-1-r.lastGrew) <= r.totals.Records
	g.First = &First{Step: at.Step, Microbatch: at.Microbatch, LastStep: at.Step, Last: at.Microbatch, position: r.firstExcessIn}
	s, ok := riseOf(r.excess.list, halvesOfStep)
	if !ok { // too few microbatches for a slope, or a single increase
		most := float64(r.excessMost) / float64(max(r.microbatches()-r.firstExcessIn, 1))
		s.slope = slope{Median: most, Low: most, High: most}
	}
	g.setRate(s.slope, 1) // addExcess counts microbatches, even in a thinned log
	return g, true
}

// setRate sets the growth per microbatch, if a position of the slope stands for the given number of them.
func (g *Growth) setRate(s slope, microbatches int) {
	n := float64(microbatches)
	g.perPosition = s.Median
	g.PerMicrobatch, g.Low, g.High = rounded(s.Median/n), rounded(s.Low/n), rounded(s.High/n)
}

// rounded rounds bytes to a meaningful precision: whole bytes, or two digits below 10 bytes.
func rounded(bytes float64) float64 {
	if bytes == 0 || math.Abs(bytes) >= 10 {
		return math.Round(bytes)
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(bytes)))-1)
	return math.Round(bytes/unit) * unit
}

// stepNumber returns the number of the step with the given index, as precisely as the columns
// allow: most logs number steps consecutively.
func (r *rankTotals) stepNumber(index int64) int64 {
	spread := float64(r.last.Step-r.first.Step) / math.Max(float64(r.totals.Steps-1), 1)
	return r.first.Step + int64(math.Round(float64(index)*spread))
}
