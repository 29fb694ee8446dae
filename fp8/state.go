package fp8

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Slot is a tensor that is scaled. It represents the tensor in every microbatch.
type Slot struct {
	Name string // unique in a State
	Role Role
}

// ErrState is returned for an invalid state, and for a checkpoint of another state.
var ErrState = errors.New("fp8: state")

// State is the scaling state of a model's tensors: under [DelayedScaling] a scale and a history
// for each slot, under other recipes only their names. It is for one goroutine. A step measures
// a [Tally] for each slot, merged over microbatches, ranks and replicas in any order; the state
// itself changes only in End.
type State struct {
	recipe  Recipe
	slots   []Slot
	length  int       // of a history, in steps; 0 if the recipe has none
	scales  []float32 // by slot
	history []float32 // by slot, length each, the latest last; 0 for steps that are missing
}

// NewState returns the state before the first step: scales of 1 and empty histories.
func NewState(recipe Recipe, slots []Slot) (*State, error) {
	if recipe == nil {
		return nil, fmt.Errorf("%w: no recipe", ErrRecipe)
	}
	if err := recipe.Validate(); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i, slot := range slots {
		if slot.Name == "" || seen[slot.Name] {
			return nil, fmt.Errorf("%w: slot %d is called %q: every slot needs a unique name", ErrState, i, slot.Name)
		}
		if slot.Role >= numRoles {
			return nil, fmt.Errorf("%w: slot %q has %v", ErrState, slot.Name, slot.Role)
		}
		seen[slot.Name] = true
	}
	s := &State{recipe: recipe, slots: slices.Clone(slots)}
	if delayed, ok := recipe.(DelayedScaling); ok {
		s.length = delayed.steps()
	}
	s.scales = slices.Repeat([]float32{1}, len(slots))
	s.history = make([]float32, len(slots)*s.length)
	return s, nil
}

// Scales returns the scales of the running step, by slot. The view is valid until End, and must
// not be modified.
func (s *State) Scales() []float32 { return s.scales }

// Known reports whether a slot has a history to be scaled by. All others are scaled by their
// own greatest magnitude: in the first step under [DelayedScaling], in every step under the
// other recipes. It changes only in End.
func (s *State) Known(slot int) bool {
	return slices.ContainsFunc(s.past(slot), func(a float32) bool { return a != 0 })
}

// past returns the history of a slot, with the latest step last.
func (s *State) past(slot int) []float32 { return s.history[slot*s.length:][:s.length] }

// End rolls the histories with the measurements of the step, and sets the scales of the next
// step: the format's greatest value over 2^margin and the greatest amax of the history, or its
// latest, but at least 2^-126. tallies has one entry for each slot. A slot without
// measurements, and one with an infinity or NaN, keeps its scale and history; in other
// implementations one infinity freezes a scale until it leaves the history.
func (s *State) End(tallies []Tally) (Report, error) {
	if len(tallies) != len(s.slots) {
		return Report{}, fmt.Errorf("%w: %d tallies for %d slots", ErrState, len(tallies), len(s.slots))
	}
	var report Report
	for slot := range tallies {
		t := &tallies[slot]
		report.add(s.slots[slot].Role, t)
		if s.length > 0 && t.Amax != 0 && t.finite() {
			s.roll(slot, math.Float32frombits(t.Amax))
		}
	}
	return report, nil
}

// minScale is the smallest scale of a state: its reciprocal, by which codes are decoded, is
// finite.
const minScale = 0x1p-126

// roll adds the greatest magnitude of a step to the history of a slot.
func (s *State) roll(slot int, latest float32) {
	recipe := s.recipe.(DelayedScaling)
	past := s.past(slot)
	copy(past, past[1:])
	past[s.length-1] = latest
	if !recipe.MostRecent {
		latest = slices.Max(past)
	}
	most := recipe.Format.of(s.slots[slot].Role).Max()
	s.scales[slot] = max(minScale, ScaleOf(latest, float32(math.Ldexp(float64(most), -recipe.Margin)), 0, false))
}
