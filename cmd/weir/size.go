package main

import (
	"errors"

	"github.com/weir-ml/weir/trainer/units"
)

// size is a number of bytes, at least 1, optionally with a unit.
type size int64

// UnmarshalText reads 1000, 512MiB, 1.5GiB or 80GB.
func (s *size) UnmarshalText(text []byte) error {
	n, err := units.ParseSize(string(text))
	if err == nil && n < 1 {
		err = errors.New("give at least 1 byte")
	}
	*s = size(n)
	return err
}
