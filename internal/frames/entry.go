package frames

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/effects"
)

// entry is what is being filled.
type entry[T any] struct {
	item   int
	wanted uint64
	tried  func(part int, h T) error // where nothing is to be kept: see Try
}

// EntryIndex returns the number in the batch of the microbatch whose entry is filled.
func (c *Frames[T]) EntryIndex() int { return c.entry.item }

// Rank returns the rank.
func (c *Frames[T]) Rank() int { return c.rank }

// Wants reports whether a stage of this rank reads the part in this step, and which part
// it is: -1 where no stage of any rank reads it.
func (c *Frames[T]) Wants(name string) (wants bool, part int) {
	part = slices.Index(c.parts, name)
	return part >= 0 && c.entry.wanted>>part&1 == 1, part
}

// Put takes a part over, and releases it where it cannot, or where this rank does not want
// it.
func (c *Frames[T]) Put(name string, h T) error {
	err := c.putPart(name, h)
	if err == errUnwanted {
		_, err = c.space.Release(h)
	} else if err != nil {
		_, _ = c.space.Release(h) // The first error is the one to tell.
	}
	return err
}

// errUnwanted says that the rank does not read a part in this step.
var errUnwanted = errors.New("unwanted")

func (c *Frames[T]) putPart(name string, h T) error {
	wants, part := c.Wants(name)
	if part < 0 {
		return fmt.Errorf("%w: part %q of microbatch %d, where stages read %q: declare the read, Decl.Part(%[2]q), or do not put it", ErrUnread, name, c.entry.item, c.parts)
	}
	if c.entry.tried != nil {
		return cmp.Or(c.entry.tried(part, h), errUnwanted)
	}
	if !wants {
		return errUnwanted
	}
	cell := c.part(c.entry.item, part)
	if cell.held() {
		return fmt.Errorf("%w: part %q of microbatch %d was put already", ErrOccupied, name, c.entry.item)
	}
	if err := c.hold(cell, h, ofParts); err != nil {
		return fmt.Errorf("batchctx: part %q of microbatch %d: %w", name, c.entry.item, err)
	}
	c.counts[effects.Part]++
	return nil
}

// Pull calls fill for the entry of an item (Extent.Item) and takes over what it puts. A
// failure of the entry comes first, even where the source has swallowed it.
func (c *Frames[T]) Pull(item int, fill func() error) error {
	for anyHeld(c.entryAt(item)) {
		if c.entryOf[item&c.entryMask] == c.extent.OfItem(item) {
			return fmt.Errorf("%w: the entry of microbatch %d is there already", ErrOccupied, item)
		}
		c.widen()
	}
	c.entryOf[item&c.entryMask] = c.extent.OfItem(item)
	c.entry = entry[T]{item: item, wanted: c.extent.Of(item)}
	if err := c.End(fill()); err != nil {
		return err
	}
	for part := range c.parts {
		if c.entry.wanted>>part&1 == 1 && !c.part(item, part).held() {
			return fmt.Errorf("%w: the source gave no %q for microbatch %d: Put it", ErrMissing, c.parts[part], item)
		}
	}
	return nil
}

// Try calls fill for the entry of an item as on a rank that reads every part, and lends what it
// puts to tried. Nothing is kept.
func (c *Frames[T]) Try(item int, tried func(part int, h T) error, fill func() error) error {
	c.entry = entry[T]{item, ^uint64(0), tried}
	return c.End(fill())
}

// DropParts ends the parts of a microbatch's entry that are in the set, one bit each (L1).
func (c *Frames[T]) DropParts(microbatch int, set uint64) error {
	item := c.extent.Item(microbatch)
	set &= c.extent.Of(item)
	for part := 0; set != 0; part, set = part+1, set>>1 {
		if set&1 == 0 {
			continue
		}
		cell := c.part(item, part)
		if !cell.held() {
			return fmt.Errorf("%w: part %q of microbatch %d", ErrDropped, c.parts[part], microbatch)
		}
		if err := c.drop(cell, c.running.stage, effects.Part); err != nil {
			return err
		}
		c.counts[effects.Part]--
	}
	return nil
}

// widen makes room for twice as many entries: the copies of a model take turns, so that
// entries wait which no copy has begun with.
func (c *Frames[T]) widen() {
	entries, of := c.entries, c.entryOf
	c.entries, c.entryOf, c.entryMask = make([]cell[T], 2*len(entries)), make([]int, 2*len(of)), 2*len(of)-1
	for place, microbatch := range of {
		if entry := entries[place*len(c.parts):][:len(c.parts)]; anyHeld(entry) {
			item := c.extent.Item(microbatch)
			copy(c.entryAt(item), entry)
			c.entryOf[item&c.entryMask] = microbatch
		}
	}
}

// entryAt returns the cells of an item's entry.
func (c *Frames[T]) entryAt(item int) []cell[T] {
	return c.entries[(item&c.entryMask)*len(c.parts):][:len(c.parts)]
}

// part returns the cell of a part of an item's entry.
func (c *Frames[T]) part(item, part int) *cell[T] {
	return &c.entries[(item&c.entryMask)*len(c.parts)+part]
}
