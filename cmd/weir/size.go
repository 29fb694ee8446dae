package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/schedule/units"
)

// rate is a number of bytes per second.
type rate int64

// UnmarshalText reads a rate, such as 25GB/s or 12GiB/s.
func (r *rate) UnmarshalText(text []byte) error {
	amount, perSecond := strings.CutSuffix(string(text), "/s")
	var s size
	if err := s.UnmarshalText([]byte(amount)); err != nil || !perSecond {
		return fmt.Errorf("%q is not a rate: give bytes a second, such as 25GB/s", text)
	}
	*r = rate(s)
	return nil
}

// size is the value of a flag for bytes, at least 1, which may be given with a unit.
type size int64

// UnmarshalText reads a size, such as 1000, 512MiB, 1.5GiB or 80GB.
func (s *size) UnmarshalText(text []byte) error {
	n, err := units.ParseSize(string(text))
	if err == nil && n < 1 {
		err = errors.New("give at least 1 byte")
	}
	*s = size(n)
	return err
}

// allowance is a number of bytes that may be 0, optionally with a unit.
type allowance int64

// UnmarshalText reads a size, or 0.
func (a *allowance) UnmarshalText(text []byte) error {
	n, err := units.ParseSize(string(text))
	*a = allowance(n)
	return err
}
