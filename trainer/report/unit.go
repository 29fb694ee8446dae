package report

import (
	"math"
	"strconv"
	"strings"
)

// Unit says how the numbers of an axis are written.
type Unit uint8

// The units.
const (
	Plain Unit = iota // a number with as many digits as the ticks need
	Bytes             // KiB, MiB, GiB
	Count             // a whole number with thousands separated
)

// Size returns a number of bytes for a person, such as "3.4 MiB".
func Size(n int64) string {
	value, sign := float64(n), ""
	if n < 0 {
		value, sign = -value, "-"
	}
	if value < 1024 {
		return sign + strconv.FormatFloat(value, 'f', -1, 64) + " B"
	}
	names := [...]string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := -1
	for value >= 1024 && i < len(names)-1 {
		value /= 1024
		i++
	}
	digits := 1
	if value >= 100 {
		digits = 0
	}
	return sign + strconv.FormatFloat(value, 'f', digits, 64) + " " + names[i]
}

// Whole returns the whole number that is nearest to a value, 0 where it is none.
func Whole(value float64) int64 {
	switch value = math.Round(value); {
	case math.IsNaN(value):
		return 0
	case value >= math.MaxInt64:
		return math.MaxInt64
	case value <= math.MinInt64:
		return math.MinInt64
	}
	return int64(value)
}

// Group writes a whole number with thousands separated by commas.
func Group(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return sign + b.String()
}

// scale is an axis: a range of values, its ticks, and how they are written.
type scale struct {
	low, high float64
	ticks     []float64
	unit      Unit
	step      float64
}

// newScale covers [low, high] with about n ticks on round numbers, so that both
// ends are ticks.
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

// roundStep returns the next round number at or above step: 1, 2 or 5 times a
// power of ten, or a power of two where it counts bytes.
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

// label writes a value with the precision that the ticks need.
func (s scale) label(value float64) string {
	switch s.unit {
	case Bytes:
		return Size(Whole(value))
	case Count:
		return Group(Whole(value))
	}
	digits := 0
	for step := s.step; digits < 6 && math.Abs(step-math.Round(step)) > 1e-9*step; step *= 10 {
		digits++
	}
	return strconv.FormatFloat(value, 'f', digits, 64)
}

// text writes a value as exactly as a tooltip should.
func (u Unit) text(value float64) string {
	switch u {
	case Bytes:
		n := Whole(value)
		if n < 1024 && n > -1024 {
			return Size(n)
		}
		return Size(n) + " (" + Group(n) + " bytes)"
	case Count:
		return Group(Whole(value))
	}
	return strconv.FormatFloat(value, 'g', 5, 64)
}
