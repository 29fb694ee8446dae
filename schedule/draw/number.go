package draw

import (
	"math"
	"strconv"
	"strings"
)

// decimal writes a number with at most so many decimals, without trailing zeros.
func decimal(x float64, decimals int) string {
	s := strconv.FormatFloat(x, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// grouped writes a whole number, at least 0, with thousands separated by commas.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// size writes a number of bytes for a person: 3.4 MiB.
func size(n int64) string {
	value, unit := float64(n), "B"
	for _, larger := range [...]string{"KiB", "MiB", "GiB", "TiB"} {
		if math.Abs(value) < 1024 {
			break
		}
		value, unit = value/1024, larger
	}
	decimals := 1
	if value >= 100 {
		decimals = 0
	}
	return decimal(value, decimals) + " " + unit
}

// roundStep returns the first of 1, 2, 5, 10, 20, 50, ... times a power of ten that is
// at least this, and how many decimals its multiples need.
func roundStep(least float64) (step float64, decimals int) {
	power := int(math.Floor(math.Log10(least)))
	for {
		for _, digit := range [...]float64{1, 2, 5} {
			if step = digit * math.Pow(10, float64(power)); step >= least*(1-1e-9) {
				return step, max(0, -power)
			}
		}
		power++
	}
}

// escape writes text for XML, where no byte may end an attribute or an element.
// Characters that XML does not have become a question mark.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString("&quot;")
		case r < ' ' && r != '\t' && r != '\n', r == 0xFFFE, r == 0xFFFF:
			b.WriteByte('?')
		default:
			b.WriteRune(r) // what is not UTF-8 arrives as U+FFFD
		}
	}
	return b.String()
}
