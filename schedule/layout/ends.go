package layout

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// How buffers begin and end in a played program: the drops of an action, step end, and
// the numbers of references.

// drop ends what dies with an action, in the order of the runner: entry parts, input,
// gradient, what was saved, what was sent, copies of weights.
func (p *player) drop(a schedule.Action, taken []Event) error {
	s, m, kind, drop := a.Stage(), a.Microbatch(), a.Kind(), a.Drop()
	key := frameKey{int32(s), int32(m)}
	f := p.frames[key]
	if drop&schedule.DropParts != 0 {
		if e := p.entries[key.microbatch]; e != nil {
			if err := p.dropParts(e, p.plan.Parts[s][kind]); err != nil {
				return err
			}
			if e.wanted == 0 {
				delete(p.entries, key.microbatch)
			}
		}
	}
	if drop&schedule.DropInput != 0 && f != nil {
		if err := p.endAll(f.in); err != nil {
			return err
		}
	}
	if drop&schedule.DropGrad != 0 && f != nil {
		if err := p.endAll(f.gradOut); err != nil {
			return err
		}
	}
	if len(taken) > 0 {
		if err := p.events(f, nil, taken, origin{stage: key.stage, microbatch: key.microbatch}); err != nil {
			return err
		}
	}
	if p.plan.Ends(s, kind) {
		delete(p.frames, key)
	}
	if drop&schedule.DropSent != 0 {
		what := 0
		if kind == schedule.WaitB {
			what = 1
		}
		b := p.box(key)
		if err := p.endAll(b.out[what]); err != nil {
			return err
		}
		if b.out[what] = nil; b.out[1-what] == nil {
			delete(p.outbox, key)
		}
	}
	return p.dropWeights(int32(s), drop)
}

// dropWeights ends copies of a stage's weights.
func (p *player) dropWeights(s int32, drop schedule.Drop) error {
	c := p.copied[s]
	if drop&schedule.DropForwardWeights != 0 {
		if err := p.endAll(c.forward); err != nil {
			return err
		}
		c.forward = nil
		p.copied[s] = c
	}
	if drop&schedule.DropBackwardWeights != 0 {
		if err := p.endAll(c.backward); err != nil {
			return err
		}
		c.backward = nil
		p.copied[s] = c
	}
	return nil
}

// dropParts ends parts of an entry.
func (p *player) dropParts(e *entry, set uint64) error {
	for part := range e.parts {
		if bit := uint64(1) << part; set&e.wanted&bit != 0 {
			e.wanted &^= bit
			if e.parts[part] >= 0 {
				if err := p.release(e.parts[part]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// finish plays step end: the entries that nobody had a use for, and the uses of tied
// parameters that come from other ranks, one after the other.
func (p *player) finish() error {
	if err := p.pull(p.plan.Microbatches - 1); err != nil {
		return err
	}
	if p.plan.Mode == schedule.ForwardOnly {
		return nil
	}
	type use struct{ stage, param int }
	first := map[string]use{}
	var ties [][2]use
	rank := p.plan.Placement.Rank
	for s := range rank {
		for i, param := range p.profile.params(s) {
			if param.Frozen {
				continue
			}
			if owner, tied := first[param.Name]; tied {
				ties = append(ties, [2]use{owner, {s, i}})
			} else {
				first[param.Name] = use{s, i}
			}
		}
	}
	for to := range 2 { // the uses to their owners, then the totals to the uses
		for _, tie := range ties {
			here, there := tie[to], tie[1-to]
			if rank[here.stage] != p.rank || rank[there.stage] == p.rank {
				continue
			}
			bytes := p.profile.params(there.stage)[there.param].Bytes
			i, err := p.born(bytes, false, memory.Transfer, origin{kind: ofTiedUse, stage: int32(here.stage), microbatch: -1, index: int32(here.param)})
			if err != nil {
				return err
			}
			if err := p.release(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// ended returns an error where something still lives.
func (p *player) ended() error {
	for i := range p.items {
		if it := &p.items[i]; it.refs > 0 {
			return fmt.Errorf("%w: rank %d: %s of microbatch %d is never released", ErrProfile, p.rank, p.profile.name(it.origin, p.shape(int(it.origin.microbatch))), it.origin.microbatch)
		}
	}
	return nil
}

// born makes an item with one reference.
func (p *player) born(bytes int64, atMost bool, class memory.Class, o origin) (int32, error) {
	i := int32(len(p.items))
	if len(p.items) >= p.limit {
		return 0, p.tooLong()
	}
	if i == int32(cap(p.items)) {
		p.items = slices.Grow(p.items, len(p.items)+256)
	}
	p.items = append(p.items, item{
		bytes: bytes, atMost: atMost, class: class, refs: 1, birth: p.count, place: p.at, repeat: p.at.repeat, ordinal: p.ordinal, since: p.count - p.begin, origin: o,
	})
	p.ordinal++
	p.note(i)
	return i, nil
}

func (p *player) tooLong() error {
	return fmt.Errorf("%w: rank %d allocates more than %d times before its program repeats itself, since what it keeps grows with microbatches; take a schedule whose microbatches in flight do not, such as 1f1b, or fewer microbatches", ErrTooLong, p.rank, p.limit)
}

// release ends a reference, and the item with the last one.
func (p *player) release(i int32) error {
	it := &p.items[i]
	if it.refs <= 0 {
		return fmt.Errorf("%w: %s of microbatch %d is released once more than it is retained", ErrProfile, p.profile.name(it.origin, p.shape(int(it.origin.microbatch))), it.origin.microbatch)
	}
	if it.refs--; it.refs == 0 {
		it.death = p.count
		p.note(^i)
	}
	return nil
}

// endAll releases a list, in order.
func (p *player) endAll(list []int32) error {
	for _, i := range list {
		if i >= 0 {
			if err := p.release(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// note logs a change.
func (p *player) note(change int32) {
	p.count++
	if p.emit != nil {
		p.emit(change)
	} else {
		if len(p.log) == cap(p.log) {
			p.log = slices.Grow(p.log, len(p.log)+512)
		}
		p.log = append(p.log, change)
	}
	if p.skip != nil {
		p.skip.note(p, change)
	}
}
