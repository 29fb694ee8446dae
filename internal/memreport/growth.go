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

	late   *lateRise // nil unless the rise begins after the first step
	leaves int64     // the index of the first step that leaves bytes behind
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
	if n := float64(r.every); n > 1 && g.From == "level" { // the growth found is per record
		g.PerMicrobatch, g.Low, g.High = rounded(g.PerMicrobatch/n), rounded(g.Low/n), rounded(g.High/n)
		if g.PerMicrobatch != 0 {
			g.First.Microbatch, g.First.Last = max(g.First.Microbatch-1, 0)*r.every+min(g.First.Microbatch, 1), g.First.Last*r.every
		}
	}
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

// findGrowth returns the growth per record, and where it begins.
func (r *rankTotals) findGrowth() (g Growth) {
	lows := r.lowest()
	steps, leaves := riseOf(lows, 3)
	lowsX, lowsY := points(lows, maxPoints)
	if leaves {
		g.From, g.PerStep = "level", rounded(steps.Median)
		g.leaves = steps.from
		x, y := quarter(lowsX, lowsY)
		g.Still = continues(x, y, steps.Median)
	}
	if r.grew {
		return r.excessGrowth(g)
	}
	halfX, halfY := points(r.blocks.joined(len(r.blocks.list)/2, len(r.blocks.list)), maxPoints)
	if late, ok := r.blocks.lateRise(); ok {
		g.From = "level"
		g.setRate(late.slope)
		g.late = &late
		g.Still = r.growsAtEnd(late.block, late.Median)
		g.First = &First{Step: late.first, LastStep: late.last, Microbatch: int(late.from), Last: int(late.to), position: late.from}
	} else if inStep, ok := riseOf(r.stepProfile.list, 1); ok && continues(halfX, halfY, inStep.Median) {
		g.From = "level"
		g.Still = r.growsAtEnd(0, inStep.Median)
		g.setRate(inStep.slope)
		g.First = &First{Step: r.first.Step, LastStep: r.first.Step, Microbatch: int(inStep.from), Last: int(inStep.to), position: inStep.from, every: r.totals.Steps > 1 && !leaves}
	} else if leaves { // each step leaves bytes behind that its microbatches do not show
		g.First = &First{Step: r.stepNumber(steps.from), LastStep: r.stepNumber(steps.to), position: -1}
	} else if rate, ok := r.inconclusiveSteps(lowsX, lowsY); ok {
		g.Unclear, g.PerStep = true, rounded(rate)
	} else if rate, ok := inconclusive(halfX, halfY); ok && fit(halfX, halfY).Median >= fit(points(r.stepProfile.list, maxPoints)).Median/2 {
		g.Unclear, g.PerMicrobatch = true, rounded(rate)
	}
	return g
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
func (r *rankTotals) excessGrowth(g Growth) Growth {
	at := r.firstExcess
	for _, leak := range slices.SortedFunc(maps.Keys(r.leaks), func(a, b memory.Leak) int {
		return cmp.Or(cmp.Compare(r.leaks[b], r.leaks[a]), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Call, b.Call))
	}) {
		g.Leak = &Leak{leak.Stage, leak.Name, leak.Call, leak.Class.String(), r.leaks[leak]}
		break
	}
	if r.left > 0 && r.leaking > 0 {
		g.PerStep = rounded(float64(r.left) / float64(r.leaking))
	}
	g.From, g.Still = "books", 4*(r.totals.Records-1-r.lastGrew) <= r.totals.Records
	g.First = &First{Step: at.Step, Microbatch: at.Microbatch, LastStep: at.Step, Last: at.Microbatch, position: r.firstExcessIn}
	if s, ok := riseOf(r.excess.list, 1); ok {
		g.setRate(s.slope)
		return g
	}
	// Too few microbatches for a slope, or a single increase.
	most := rounded(float64(r.excessMost) / float64(max(r.microbatches()-r.firstExcessIn, 1)))
	g.PerMicrobatch, g.Low, g.High = most, most, most
	return g
}

// setRate sets the growth per microbatch, in whole bytes.
func (g *Growth) setRate(s slope) {
	g.PerMicrobatch, g.Low, g.High = rounded(s.Median), rounded(s.Low), rounded(s.High)
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
