package main

import (
	"fmt"
	"strconv"
	"strings"
)

// size is a number of bytes, which may be written with a unit.
type size int64

// UnmarshalText reads 1000, 512MiB, 1.5GiB or 80GB.
func (s *size) UnmarshalText(text []byte) error {
	word, unit := string(text), 1.0
	for _, u := range []struct {
		suffix string
		bytes  float64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	} {
		if digits, ok := strings.CutSuffix(word, u.suffix); ok {
			word, unit = strings.TrimSpace(digits), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || !(n*unit >= 1 && n*unit <= 1<<50) {
		return fmt.Errorf("%q is no size: give 1 byte to 1024TiB, as a number, with KiB, MiB, GiB, TiB, KB, MB, GB or TB where they are not bytes", text)
	}
	*s = size(n * unit)
	return nil
}
