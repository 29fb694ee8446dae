package fp8

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Role is what a tensor is to the stage that quantizes it.
type Role uint8

// The roles of the tensors of a linear layer.
const (
	Input Role = iota
	Weight
	Output
	GradOutput
	GradInput
)

// String returns the name in lower case.
func (r Role) String() string {
	if int(r) < 5 {
		return [...]string{"input", "weight", "output", "grad_output", "grad_input"}[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// backward reports whether the tensor is a gradient.
func (r Role) backward() bool { return r == GradOutput || r == GradInput }

// Slot is one tensor that is scaled by its history.
type Slot struct {
	Name string // unique in a State
	Role Role
}

// Errors of states.
var (
	// ErrState is returned for a state that cannot be, and for a checkpoint of another one.
	ErrState = errors.New("fp8: state")
)

// State is the scales of a model under [DelayedScaling], and the histories that they
// come from. It is for one goroutine. What a step measures is a slice with a greatest
// magnitude for each slot, merged by maximum over microbatches, ranks and replicas, in
// any order; the state itself changes in End alone.
type State struct {
	recipe  DelayedScaling
	slots   []Slot
	length  int
	scales  []float32 // by slot
	history []float32 // by slot, length each, the latest last; 0 where there is none yet
}

// NewState returns the state before the first step: scales of 1 and empty histories.
func NewState(recipe DelayedScaling, slots []Slot) (*State, error) {
	if err := recipe.Validate(); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i, slot := range slots {
		if slot.Name == "" || seen[slot.Name] {
			return nil, fmt.Errorf("%w: slot %d is called %q: every slot needs a name of its own", ErrState, i, slot.Name)
		}
		if slot.Role > GradInput {
			return nil, fmt.Errorf("%w: slot %q has %v", ErrState, slot.Name, slot.Role)
		}
		seen[slot.Name] = true
	}
	s := &State{recipe: recipe, slots: slices.Clone(slots), length: recipe.History}
	if s.length == 0 {
		s.length = 16
	}
	s.scales = slices.Repeat([]float32{1}, len(slots))
	s.history = make([]float32, len(slots)*s.length)
	return s, nil
}

// Scales returns the scales of the running step, by slot. It is a view that holds until
// End; nobody may write to it.
func (s *State) Scales() []float32 { return s.scales }

// Known reports whether a slot has a history. The first step of one that has none scales
// it by its own greatest magnitude.
func (s *State) Known(slot int) bool {
	return slices.ContainsFunc(s.history[slot*s.length:][:s.length], func(a float32) bool { return a != 0 })
}

// Report is what the end of a step has come to.
type Report struct {
	// NonFinite counts the slots whose greatest magnitude was infinite or NaN. They keep
	// scale and history: elsewhere one infinity freezes a scale until it has left the
	// history.
	NonFinite int
	// Unused counts the slots that nothing was measured of. They keep scale and history.
	Unused int
}

// End rolls the histories by what the step has measured, and sets the scales of the
// next one: the format's greatest value over 2^margin and the greatest of the history,
// or its latest. Amax has one entry for each slot, 0 where nothing was measured.
func (s *State) End(amax []float32) (Report, error) {
	if len(amax) != len(s.slots) {
		return Report{}, fmt.Errorf("%w: %d measured where there are %d slots", ErrState, len(amax), len(s.slots))
	}
	var report Report
	for i, latest := range amax {
		switch {
		case latest == 0:
			report.Unused++
			continue
		case latest != latest || math.IsInf(float64(latest), 0):
			report.NonFinite++
			continue
		}
		history := s.history[i*s.length:][:s.length]
		copy(history, history[1:])
		history[s.length-1] = latest
		if !s.recipe.MostRecent {
			latest = slices.Max(history)
		}
		format := s.recipe.Format.Forward
		if s.slots[i].Role.backward() {
			format = s.recipe.Format.Backward
		}
		s.scales[i] = ScaleOf(latest, float32(math.Ldexp(float64(format.Max()), -s.recipe.Margin)), 0, false)
	}
	return report, nil
}
