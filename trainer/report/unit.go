package report

import (
	"math"
	"strconv"

	"github.com/weir-ml/weir/schedule/units"
)

// Unit defines how the numbers of an axis are formatted.
type Unit uint8

// The units.
const (
	Plain Unit = iota // a number with as many digits as the ticks need
	Bytes             // KiB, MiB, GiB
	Count             // a whole number with thousands separators
)

// scale is an axis: a range of values, its ticks, and their format.
type scale struct {
	low, high float64
	ticks     []float64
	unit      Unit
	step      float64
}

// newScale returns a scale that covers [low, high] with about n ticks at round numbers. Both of
// its ends are ticks.
func newScale(low, high float64, n int, unit Unit) scale {
	if !(high > low) {
		high = low + 1
	}
	s := scale{unit: unit, step: roundStep((high-low)/float64(n), unit)}
	if unit == Count {
		s.step = max(s.step, 1)
	}
	s.low = math.Floor(low/s.step) * s.step
	s.high = math.Ceil(high/s.step) * s.step
	for i := 0; ; i++ {
		tick := s.low + float64(i)*s.step
		if tick > s.high+s.step/2 {
			break
		}
		s.ticks = append(s.ticks, tick)
	}
	return s
}

// roundStep returns the smallest round number that is not less than step: 1, 2 or 5 times a power
// of ten, or a power of two for bytes.
func roundStep(step float64, unit Unit) float64 {
	if unit == Bytes {
		return math.Exp2(math.Ceil(math.Log2(max(step, 1))))
	}
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range [...]float64{1, 2, 5, 10} {
		if m*power >= step*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// label formats a value with the precision of the ticks.
func (s scale) label(value float64) string {
	switch s.unit {
	case Bytes:
		return units.Size(units.Round(value))
	case Count:
		return units.Count(units.Round(value))
	}
	digits := 0
	for step := s.step; digits < 6 && math.Abs(step-math.Round(step)) > 1e-9*step; step *= 10 {
		digits++
	}
	return strconv.FormatFloat(value, 'f', digits, 64)
}

// text formats a value with a tooltip's precision.
func (u Unit) text(value float64) string {
	switch u {
	case Bytes:
		return units.Exactly(units.Round(value))
	case Count:
		return units.Count(units.Round(value))
	}
	return strconv.FormatFloat(value, 'g', 5, 64)
}
