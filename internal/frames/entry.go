package frames

import (
	"context"
	"fmt"

	"github.com/weir-ml/weir/internal/invariants"
)

// Entry is what a source fills for one microbatch. It is a view: it ends when
// the source returns.
type Entry[T any] struct {
	ctx    *Frames[T]
	item   int
	wanted uint64
}

// Microbatch returns the number of the microbatch in the batch, from 0: a source is asked
// in this order. It is Microbatch.Index of the stages that read the entry.
func (e *Entry[T]) Microbatch() int { return e.item }

// Wants reports whether a stage of this rank reads the part in this step. A
// source need not make what nobody wants.
func (e *Entry[T]) Wants(part int) bool {
	return e.ctx != nil && part >= 0 && part < len(e.ctx.parts) && e.wanted>>part&1 == 1
}

// Put hands a part over. A part that nobody wants ends at once. After an error h
// is still the source's.
func (e *Entry[T]) Put(part int, h T) error {
	c := e.ctx
	if c == nil {
		return fmt.Errorf("%w: the entry of microbatch %d", ErrEnded, e.item)
	}
	if part < 0 || part >= len(c.parts) {
		return fmt.Errorf("%w: entry part %d of %d", ErrUndeclared, part, len(c.parts))
	}
	if !e.Wants(part) {
		_, err := c.space.Release(h)
		return err
	}
	cell := c.part(e.item, part)
	if cell.held() {
		return fmt.Errorf("%w: part %q of microbatch %d", ErrOccupied, c.parts[part], e.item)
	}
	if err := c.hold(cell, h); err != nil {
		return fmt.Errorf("batchctx: part %q of microbatch %d: %w", c.parts[part], e.item, err)
	}
	c.counts.Parts++
	return nil
}

// Pull calls fill for the entry of an item (Extent.Item) and takes over what it puts.
func (c *Frames[T]) Pull(ctx context.Context, item int, fill func(context.Context, *Entry[T]) error) error {
	for part := range c.parts {
		cell := c.part(item, part)
		if cell.held() {
			return fmt.Errorf("%w: the entry of microbatch %d still holds part %q of an earlier one",
				ErrOccupied, item, c.parts[part])
		}
		cell.state = empty
	}
	c.entryOf[item&c.entryMask] = c.extent.OfItem(item)
	entry := c.newEntry(item)
	defer func() { entry.ctx = nil }()
	if err := fill(ctx, entry); err != nil {
		return err
	}
	for part := range c.parts {
		if entry.wanted>>part&1 == 1 && !c.part(item, part).held() {
			return fmt.Errorf("%w: the source gave no %q for microbatch %d", ErrMissing, c.parts[part], item)
		}
	}
	return nil
}

// newEntry returns the view of an entry for one call of the source: one of its own
// where invariants are checked, so that a source which keeps one never reaches a
// later entry through it.
func (c *Frames[T]) newEntry(item int) *Entry[T] {
	entry := &c.entry
	if invariants.Enabled {
		entry = new(Entry[T])
	}
	entry.ctx, entry.item, entry.wanted = c, item, c.extent.Of(c.extent.OfItem(item))
	return entry
}

// DropParts ends the parts of a microbatch's entry that are in the set, one bit each (L1).
func (c *Frames[T]) DropParts(microbatch int, set uint64) error {
	set &= c.extent.Of(microbatch)
	item := c.extent.Item(microbatch)
	for part := 0; set != 0; part, set = part+1, set>>1 {
		if set&1 == 0 {
			continue
		}
		cell := c.part(item, part)
		if !cell.held() {
			return fmt.Errorf("%w: part %q of microbatch %d", ErrDropped, c.parts[part], microbatch)
		}
		if err := c.drop(cell, c.running.stage, entryPart); err != nil {
			return err
		}
		c.counts.Parts--
	}
	return nil
}

// part returns the cell of a part of an item's entry.
func (c *Frames[T]) part(item, part int) *cell[T] {
	return &c.entries[(item&c.entryMask)*len(c.parts)+part]
}
