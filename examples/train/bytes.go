package main

import (
	"fmt"
	"strconv"
	"strings"
)

// bytesValue is a flag with a number of bytes, such as 1000, 512KiB, 1.5MiB or 80GiB.
type bytesValue int64

func (v *bytesValue) String() string { return strconv.FormatInt(int64(*v), 10) }

func (v *bytesValue) Set(text string) error {
	number, unit := text, 1.0
	for i, suffix := range []string{"KiB", "MiB", "GiB"} {
		if digits, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = digits, float64(int64(1)<<(10*(i+1)))
		}
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n*unit >= 0 && n*unit <= 1<<50) {
		return fmt.Errorf("%q is no number of bytes: give one, or as 512KiB, 64MiB or 1.5GiB", text)
	}
	*v = bytesValue(n * unit)
	return nil
}
