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
	notes  []string // checks that were skipped
	splits bool     // the stage can split its backward
	// The results of depth-first steps of one and of several microbatches, with which the other checks
	// compare.
	one, several numbers
}

// several is the number of microbatches of most steps: more than one, so that their order can
// matter and their lengths can be uneven.
const several = 5

// check runs the checks in groups. Later groups compare with results that earlier groups have
// found to be reliable.
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

// survive runs the checks that a stage must pass with a whole backward and, if it supports it,
// with a split backward.
func (s *suite[T]) survive() {
	settings := []setting[T]{{name: "depth-first"}}
	if s.splits {
		split := setting[T]{name: "I and W apart", split: true, lag: 1}
		s.frozenBefore(split)
		settings = append(settings, split)
	}
	for _, check := range []func(setting[T]){s.cancel, s.failures, s.allocations, s.reachable} {
		for _, set := range settings {
			check(set)
		}
	}
}

// report appends a fault, unless one with this code was already reported.
func (s *suite[T]) report(code Code, format string, args ...any) {
	for _, f := range s.faults {
		if f.Code == code {
			return
		}
	}
	s.faults = append(s.faults, Fault{Code: code, Text: fmt.Sprintf(format, args...) + "; " + code.advice + "."})
}

// note records once that a check was skipped.
func (s *suite[T]) note(text string) {
	if !slices.Contains(s.notes, text) {
		s.notes = append(s.notes, text)
	}
}
