package main

import (
	"fmt"
	"strconv"
	"strings"
)

// size is a number of bytes, which may be written with a unit.
type size int64

// UnmarshalText reads 1000, 512MiB, 24GiB or 80GB.
func (s *size) UnmarshalText(text []byte) error {
	word, unit := string(text), int64(1)
	for suffix, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 1e3, "MB": 1e6, "GB": 1e9} {
		if digits, ok := strings.CutSuffix(word, suffix); ok {
			word, unit = strings.TrimSpace(digits), bytes
		}
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 || n > (1<<50)/unit {
		return fmt.Errorf("%q is no size: give bytes, or a number with KiB, MiB, GiB, KB, MB or GB", text)
	}
	*s = size(n * unit)
	return nil
}
