package memreport

import (
	"fmt"
	"math"
	"strconv"

	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/terminal"
)

// size formats a number of bytes that need not be whole.
func size(n float64) string {
	if math.Abs(n) >= 10 || n == math.Trunc(n) {
		return units.Size(units.Round(n))
	}
	if math.Abs(n) < 1 {
		return strconv.FormatFloat(n, 'g', 2, 64) + " B"
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " B"
}

// sizeRange formats a range of sizes.
func sizeRange(low, high int64) string {
	from, to := units.Size(low), units.Size(high)
	switch {
	case low == high:
		return from
	case from == to:
		return from + " + " + units.Size(high-low)
	}
	return from + " to " + to
}

// cell formats growth for a cell of a table.
func (g *Growth) cell() string {
	switch {
	case g.Unclear:
		return "inconclusive"
	case !g.Grows():
		return "0 B"
	case g.rare():
		return size(g.PerStep) + " a step"
	}
	return size(g.PerMicrobatch)
}

// rare reports whether a step grows, but less than a byte with every microbatch.
func (g *Growth) rare() bool { return g.PerStep != 0 && math.Abs(g.PerMicrobatch) < 1 }

// sentence describes growth, for use after a subject.
func (g *Growth) sentence(microbatches int64) string {
	switch {
	case g.Unclear && g.PerMicrobatch == 0:
		return fmt.Sprintf("ends higher than it began, by about %s a step: inconclusive, the log is too short to tell growth from chance", size(g.PerStep))
	case g.Unclear:
		return fmt.Sprintf("ends its steps higher than it begins them, by about %s a microbatch: inconclusive, the log is too short to tell growth from chance", size(g.PerMicrobatch))
	case g.PerMicrobatch == 0:
		return fmt.Sprintf("grows by %s with every step, %s on; within a step it does not%s", size(g.PerStep), g.First.stepText(), g.ending())
	}
	text := fmt.Sprintf("grows by %s with every microbatch", size(g.PerMicrobatch))
	if g.rare() {
		text = fmt.Sprintf("grows by %s with every step, %s with every microbatch on average", size(g.PerStep), size(g.PerMicrobatch))
	} else if low, high := size(g.Low), size(g.High); low != high {
		text += fmt.Sprintf(" (99 %%: %s to %s)", low, high)
	}
	text += ", " + g.First.text() + " on"
	if g.Class != "" {
		text += ", most of it of class " + g.Class
	}
	if l := g.Leak; l != nil {
		text += fmt.Sprintf("; found after %s of stage %d (%s)", l.Call, l.Stage, terminal.Quote(l.Name))
	}
	switch inStep := g.PerMicrobatch * float64(microbatches); {
	case microbatches < 2 || g.PerStep == 0 || g.rare():
	case g.PerStep > 0.9*inStep:
		text += "; a step gives nothing of it back"
	default:
		text += fmt.Sprintf("; %s of it stay when a step has ended", size(g.PerStep))
	}
	if g.From == "books" {
		text += "; the allocator's book has bytes that the step does not hold"
	}
	return text + g.ending()
}

// ending describes whether growth continues to the end of the log.
func (g *Growth) ending() string {
	if g.Still {
		return "; still growing at the end: yes"
	}
	return "; still growing at the end: no"
}

// stepText names the step in which growth begins.
func (f *First) stepText() string {
	if f.LastStep > f.Step {
		return fmt.Sprintf("from one of steps %d to %d", f.Step, f.LastStep)
	}
	return fmt.Sprintf("from step %d", f.Step)
}

// text describes where growth begins.
func (f *First) text() string {
	microbatch := "microbatch " + strconv.Itoa(f.Microbatch)
	if f.Last > f.Microbatch {
		microbatch = fmt.Sprintf("microbatch %d to %d", f.Microbatch, f.Last)
	}
	switch {
	case f.LastStep > f.Step:
		return f.stepText()
	case f.every:
		return "in every step from " + microbatch
	}
	return f.stepText() + ", " + microbatch
}
