package draw

import (
	"encoding/xml"
	"math"
	"strings"
)

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
func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // Into memory.
	return b.String()
}
