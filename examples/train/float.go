package main

import (
	"errors"
	"math"
	"strconv"
)

// float32Value is a flag of a float32. Its String is exact.
type float32Value float32

func (f *float32Value) Set(s string) error {
	value, err := strconv.ParseFloat(s, 32)
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) {
		return errors.New("it is not a number")
	}
	*f = float32Value(value)
	return nil
}

func (f *float32Value) String() string { return strconv.FormatFloat(float64(*f), 'g', -1, 32) }
