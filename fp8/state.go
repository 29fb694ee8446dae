package fp8

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Slot identifies a tensor that is scaled. It stands for that tensor in every microbatch.
type Slot struct {
	Name string // unique in a State
	Role Role
}

// ErrState is returned for slots that do not make a state, for a wrong number of tallies, and for a
// checkpoint that is damaged or belongs to a different state.
var ErrState = errors.New("fp8: state")

// State is the scaling state of a model's tensors: under [DelayedScaling], each slot has a scale
// and a history; under other recipes, slots only have names and roles. A State must be used by one
// goroutine at a time. A step measures a [Tally] for each slot, merged over microbatches, ranks
// and replicas in any order; the state itself changes only in End and UnmarshalBinary.
type State struct {
	recipe  Recipe
	slots   []Slot
	length  int       // steps in a history; 0 if the recipe has none
	scales  []float32 // by slot
	history []float32 // by slot, length values each, the latest last; 0 for missing steps
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

// Scales returns the scales of the running step, by slot. The view is valid until End or
// UnmarshalBinary, and must not be modified.
func (s *State) Scales() []float32 { return s.scales }

// Known reports whether a slot has a history that determines its scale. If not, its tensors are
// scaled by their own greatest magnitude, as is the case in the first step under [DelayedScaling]
// and in every step under the other recipes. The result changes only in End and UnmarshalBinary.
func (s *State) Known(slot int) bool {
	return slices.ContainsFunc(s.past(slot), func(a float32) bool { return a != 0 })
}

// past returns the history of a slot, with the latest step last.
func (s *State) past(slot int) []float32 { return s.history[slot*s.length:][:s.length] }

// End rolls the histories with the step's measurements and sets the scales for the next step. A
// scale is the format's greatest value divided by 2^margin and by the greatest amax in the
// history, or the latest with MostRecent, but at least 2^-126. tallies has one entry for each
// slot. A slot whose tally has no nonzero element, or an infinity or NaN, keeps its scale and
// history; in other implementations a single infinity freezes a scale until it leaves the history.
func (s *State) End(tallies []Tally) (Statistics, error) {
	if len(tallies) != len(s.slots) {
		return Statistics{}, fmt.Errorf("%w: %d tallies for %d slots", ErrState, len(tallies), len(s.slots))
	}
	var report Statistics
	for slot := range tallies {
		t := &tallies[slot]
		report.add(s.slots[slot].Role, t)
		if s.length > 0 && t.Amax != 0 && t.finite() {
			s.roll(slot, math.Float32frombits(t.Amax))
		}
	}
	return report, nil
}

// minScale is the smallest scale in a state. Its reciprocal, by which codes are decoded, is
// finite.
const minScale = 0x1p-126

// roll adds a step's greatest magnitude to a slot's history.
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
