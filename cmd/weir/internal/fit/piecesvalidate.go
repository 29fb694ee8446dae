package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Upper bounds of amounts of operations and of seconds.
const (
	maxOperations = 1e24
	maxSeconds    = 1e6
)

// bounded is an amount of a profile, with the name that errors give it and its bounds.
type bounded struct {
	name        string
	amount      *PieceAmount
	least, most float64
	of          *PieceAmount // of which it is a part, or nil
}

// validate reports all faults of a profile whose file is complete. Each of the joined errors wraps ErrModel.
func (p *Pieces) validate() error {
	f := faults{kind: ErrModel, remedy: ": correct the file, or profile the model again"}
	f.refuse(len(p.Pieces) < 2, "it has %d pieces, expected what is before the layers, the layers, and what is after them", len(p.Pieces))
	for i, one := range p.Pieces {
		f.refuse(one.Kind < 0 || one.Kind >= len(p.Kinds), "piece %d is of kind %d, but there are %d kinds", i, one.Kind, len(p.Kinds))
	}
	inside := func(what string, pieces []int) {
		f.refuse(len(pieces) == 0, "%s has no pieces", what)
		for _, i := range pieces {
			f.refuse(i < 0 || i >= len(p.Pieces), "%s has piece %d, but there are %d", what, i, len(p.Pieces))
		}
	}
	number := func(what, of string, n, most int64) {
		f.refuse(n < 0 || n > most, "%s of %s is %d, expected 0 to %d", what, of, n, most)
	}
	for i := range p.Shared {
		inside(fmt.Sprintf("shared %d", i), p.Shared[i].Pieces)
	}
	total := 0.0
	for _, t := range p.Tied {
		name := fmt.Sprintf("tied %.80q", t.Name)
		inside(name, t.Pieces)
		number("count", name, t.Count, maxParameters)
		number("trained", name, t.Trained, max(t.Count, 0))
		number("bytes", name, t.Bytes, maxBytes)
		total += float64(t.Count)
	}
	for i, name := range p.kindNames() {
		k := &p.Kinds[i]
		number("count", name, k.Parameters.Count, maxParameters)
		number("trained", name, k.Parameters.Trained, max(k.Parameters.Count, 0))
		number("experts", name, k.Parameters.Experts, max(k.Parameters.Count, 0))
		number("bytes", name, k.Parameters.Bytes, maxBytes)
		number("buffers", name, k.Parameters.Buffers, maxBytes)
		for action := range k.Seconds {
			f.refuse(!slices.Contains(actions, action), "seconds of %s has the action %.40q, expected F, B, I or W", name, action)
		}
	}
	f.refuse(len(p.Checked) == 0, "checked has no microbatches, expected those with which the amounts were compared")
	for n, m := range append([][]int{p.Fitted}, p.Checked...) {
		what := "fitted"
		if n > 0 {
			what = fmt.Sprintf("checked %d", n-1)
		}
		f.refuse(len(m) == 0, "%s has no lengths, expected those of sequences", what)
		for _, n := range m {
			f.refuse(n < 1 || n > maxTokens, "%s has a length of %d tokens, expected 1 to %d", what, n, maxTokens)
		}
	}
	list := p.bounded()
	for _, one := range list {
		for a := one.amount; a != nil; a = a.Several {
			padded := a.Tiled != 0 || a.TiledSquare != 0
			f.refuse(a.Tile < 0 || a.Tile > maxTokens || padded && a.Tile == 0, "tile of %s is %d, expected 1 to %d, the length to a multiple of which a kernel pads", one.name, a.Tile, maxTokens)
			f.refuse(a != one.amount && a.Several != nil, "several of %s has several itself, expected one amount for more than one sequence", one.name)
		}
	}
	if len(f.list) > 0 {
		return errors.Join(f.list...)
	}
	for i := range p.Pieces {
		total += float64(p.Kinds[p.Pieces[i].Kind].Parameters.Count)
	}
	f.refuse(total > maxParameters, "the pieces have %.3g parameters, expected at most %d", total, int64(maxParameters))
	points := []Setup{}
	for _, n := range p.Fitted {
		points = append(points, Setup{Sequence: n, Microbatch: 1}, Setup{Sequence: n, Microbatch: 2})
	}
	for _, m := range p.Checked {
		points = append(points, Setup{Sequence: slices.Max(m), Microbatch: len(m)})
	}
	for n := 0; n < len(points) && len(f.list) == 0; n++ { // faults at other lengths have the same reasons
		refuseAt(&f, list, &points[n])
	}
	return errors.Join(f.list...)
}

var actions = []string{"F", "B", "I", "W"}

// kindNames returns the names that errors give the kinds: the number, and the first piece of the kind.
func (p *Pieces) kindNames() []string {
	names := make([]string, len(p.Kinds))
	for i := range names {
		names[i] = fmt.Sprintf("kind %d", i)
	}
	named := make([]bool, len(p.Kinds))
	for _, one := range p.Pieces {
		if k := one.Kind; k >= 0 && k < len(names) && !named[k] {
			names[k], named[k] = fmt.Sprintf("kind %d (%.80q)", k, one.Name), true
		}
	}
	return names
}

// bounded returns all amounts of the profile. A temporary amount may be negative, which counts as 0.
func (p *Pieces) bounded() (list []bounded) {
	add := func(name string, a *PieceAmount) {
		list = append(list, bounded{name, a, -rounding, maxBytes, nil})
	}
	add("batch", &p.Batch)
	for i := range p.Shared {
		add(fmt.Sprintf("saved of shared %d", i), &p.Shared[i].Saved)
	}
	for i, name := range p.kindNames() {
		k, of := &p.Kinds[i], " of "+name
		add("saved"+of, &k.Saved)
		list = append(list, bounded{"input" + of, &k.Input, -rounding, maxBytes, &k.Saved})
		add("cached"+of, &k.Cached)
		add("freed"+of, &k.Freed)
		add("carry"+of, &k.Carry)
		add("border"+of, &k.Border)
		for _, action := range actions {
			for n := range *k.Temporary.of(action) {
				list = append(list, bounded{"temporary " + action + of, &(*k.Temporary.of(action))[n], math.Inf(-1), maxBytes, nil})
			}
			list = append(list, bounded{"flops " + action + of, k.FLOPs.of(action), -rounding, maxOperations, nil})
			if a, measured := k.Seconds[action]; measured {
				list = append(list, bounded{"seconds " + action + of, &a, 0, maxSeconds, nil})
			}
		}
	}
	return list
}

// rounding is by how much exact amounts may be off.
const rounding = 64

// refuseAt adds a fault for each amount that is out of its bounds for the microbatches of a setup.
func refuseAt(f *faults, list []bounded, s *Setup) {
	at := fmt.Sprintf("for %d x %d tokens", max(s.Microbatch, 1), s.Sequence)
	for _, one := range list {
		v := one.amount.at(s)
		f.refuse(!(v >= one.least && v <= one.most), "%s is %.6g %s, expected 0 to %.3g", one.name, v, at, one.most)
		if one.of != nil {
			whole := one.of.at(s)
			f.refuse(v > whole+rounding, "%s is %.0f %s, expected at most what the piece has saved, %.0f", one.name, v, at, whole)
		}
	}
}
