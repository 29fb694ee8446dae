package draw

import (
	"encoding/xml"
	"math"
	"strings"
)

// roundStep returns the smallest number of at least this size that is 1, 2 or 5 times a power of ten, and
// the number of decimals that its multiples need.
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

// escape escapes text for XML, so that it cannot end an attribute or an element.
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to memory cannot fail
	return b.String()
}
