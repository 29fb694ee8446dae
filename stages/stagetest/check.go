package stagetest

import (
	"fmt"
	"slices"
	"testing"
)

// Run checks the stage and reports every fault as an error of the test.
func Run[T any](t testing.TB, cfg Config[T]) {
	t.Helper()
	s := &suite[T]{cfg: cfg}
	s.check()
	for _, note := range s.notes {
		t.Log("stagetest: " + note)
	}
	for _, fault := range s.faults {
		t.Errorf("stagetest: %v", fault)
	}
}

// Check checks the stage and returns its faults, at most one of each code, or nil. It is Run
// without testing.
func Check[T any](cfg Config[T]) []Fault {
	s := &suite[T]{cfg: cfg}
	s.check()
	return s.faults
}

// suite is a check of a stage.
type suite[T any] struct {
	cfg    Config[T]
	faults []Fault
	notes  []string // parts that were not checked
	splits bool     // the stage can split its backward
	// The results of a depth-first step, of one and several microbatches, with which the other
	// checks compare.
	one, several numbers
}

// Enough microbatches for their order to matter, and for uneven lengths.
const several = 5

// check runs the checks in groups. The later ones compare with results that the earlier ones
// have found to be reliable.
func (s *suite[T]) check() {
	whole := setting[T]{name: "depth-first"}
	for _, group := range [][]func(){
		{s.train},
		{s.repeat}, {s.order}, {s.evaluate},
		{s.first, s.add, func() { s.frozenBefore(whole) }, s.frozen, s.recompute, s.split},
		{s.differences},
		{s.survive},
	} {
		for _, check := range group {
			check()
		}
		if len(s.faults) > 0 {
			return
		}
	}
}

// survive runs the checks that a stage must pass with a whole backward and, if it supports
// that, with I and W apart.
func (s *suite[T]) survive() {
	ways := []setting[T]{{name: "depth-first"}}
	if s.splits {
		apart := setting[T]{name: "I and W apart", apart: true, lag: 1}
		s.frozenBefore(apart)
		ways = append(ways, apart)
	}
	for _, check := range []func(setting[T]){s.cancel, s.failures, s.allocations, s.reachable} {
		for _, set := range ways {
			check(set)
		}
	}
}

// report appends a fault, unless there is already one with this code.
func (s *suite[T]) report(code Code, format string, args ...any) {
	for _, f := range s.faults {
		if f.Code == code {
			return
		}
	}
	s.faults = append(s.faults, Fault{Code: code, Text: fmt.Sprintf(format, args...) + "; " + code.advice + "."})
}

// note records once that something was not checked.
func (s *suite[T]) note(text string) {
	if !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}
