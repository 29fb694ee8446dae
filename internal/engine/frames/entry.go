package frames

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
)

// entry is the entry being filled.
type entry[T any] struct {
	batchIndex int
	wanted     uint64                    // the parts that this rank reads, one bit per part
	tried      func(part int, h T) error // set by TryEntry, which keeps no parts
}

// EntryIndex returns the index in the batch of the microbatch whose entry is being filled.
func (c *Frames[T]) EntryIndex() int { return c.Index(c.entry.batchIndex) }

// Rank returns the rank to which the frames belong.
func (c *Frames[T]) Rank() int { return c.Config.Rank }

// Wants reports whether a stage of this rank reads the part in this step, and returns the part's index,
// or -1 if no stage on any rank reads it.
func (c *Frames[T]) Wants(name string) (wants bool, part int) {
	part = slices.Index(c.Config.Parts, name)
	return part >= 0 && c.entry.wanted>>part&1 == 1, part
}

// Put takes over a part. It releases h if this rank does not want the part, or on error.
func (c *Frames[T]) Put(name string, h T) error {
	wants, part := c.Wants(name)
	var err error
	switch {
	case part < 0:
		err = fmt.Errorf("%w: part %q of microbatch %d, but stages read %q: declare the read, Decl.Part(%[2]q), or do not put it", ErrUnread, name, c.EntryIndex(), c.Config.Parts)
	case c.entry.tried != nil:
		err = c.entry.tried(part, h)
	case !wants:
	case c.part(c.entry.batchIndex, part).Held():
		err = fmt.Errorf("%w: part %q of microbatch %d was put already", ErrOccupied, name, c.EntryIndex())
	default:
		if err = c.Hold(c.part(c.entry.batchIndex, part), h, partClasses); err == nil {
			c.counts[effects.Part]++
			return nil
		}
		err = fmt.Errorf("batchctx: part %q of microbatch %d: %w", name, c.EntryIndex(), err)
	}
	_, releaseErr := c.Config.Space.Release(h)
	return cmp.Or(err, releaseErr)
}

// BeginEntry finds a place in the ring for an entry, which the source fills until EndEntry. It
// returns ErrOccupied if the entry exists already.
func (c *Frames[T]) BeginEntry(batchIndex int) error {
	microbatch := c.extent.Plan.MicrobatchAt(batchIndex)
	for anyHeld(c.entryAt(batchIndex)) {
		if c.entryOwners[batchIndex&c.entryMask] == microbatch {
			return fmt.Errorf("%w: the entry of microbatch %d already exists", ErrOccupied, c.Index(batchIndex))
		}
		c.widen()
	}
	c.entryOwners[batchIndex&c.entryMask] = microbatch
	c.entry = entry[T]{batchIndex: batchIndex, wanted: c.extent.WantedParts(batchIndex)}
	return nil
}

// TryEntry begins an entry as for a rank that wants every part. Put lends each part to tried and then
// releases it.
func (c *Frames[T]) TryEntry(batchIndex int, tried func(part int, h T) error) {
	c.entry = entry[T]{batchIndex, ^uint64(0), tried}
}

// EndEntry ends the entry that the source has filled; err is the source's error. If a call on the entry
// has failed, that failure takes precedence, even if the source has ignored it. EndEntry returns
// ErrMissing if a part that the rank wants was not put.
func (c *Frames[T]) EndEntry(err error) error {
	if err := c.End(err); err != nil || c.entry.tried != nil {
		return err
	}
	for part := range c.Config.Parts {
		if c.entry.wanted>>part&1 == 1 && !c.part(c.entry.batchIndex, part).Held() {
			return fmt.Errorf("%w: the source gave no %q for microbatch %d: Put it", ErrMissing, c.Config.Parts[part], c.EntryIndex())
		}
	}
	return nil
}

// DropParts releases the parts in set, which has one bit per part, of a microbatch's entry (L1). It
// skips those that this rank does not read.
func (c *Frames[T]) DropParts(microbatch int, set uint64) error {
	batchIndex := c.extent.Plan.BatchIndex(microbatch)
	set &= c.extent.WantedParts(batchIndex)
	for part := 0; set != 0; part, set = part+1, set>>1 {
		if set&1 == 0 {
			continue
		}
		cell := c.part(batchIndex, part)
		if !cell.Held() {
			return fmt.Errorf("%w: part %q of microbatch %d", ErrDropped, c.Config.Parts[part], c.indexOf(microbatch))
		}
		if err := c.drop(cell, c.account.running.stage, effects.Part); err != nil {
			return err
		}
		c.counts[effects.Part]--
	}
	return nil
}

// widen doubles the ring of entries. It is needed because entries alternate between the copies of a model,
// and the entries of a copy that has not begun yet have to wait. Entries cannot collide in the new ring: indices
// that differ modulo its old size, as those of the held entries do, also differ modulo twice that size.
func (c *Frames[T]) widen() {
	entries, owners := c.entries, c.entryOwners
	c.entries, c.entryOwners, c.entryMask = make([]Cell[T], 2*len(entries)), make([]int, 2*len(owners)), 2*len(owners)-1
	for place, microbatch := range owners {
		if entry := entries[place*len(c.Config.Parts):][:len(c.Config.Parts)]; anyHeld(entry) {
			batchIndex := c.extent.Plan.BatchIndex(microbatch)
			copy(c.entryAt(batchIndex), entry)
			c.entryOwners[batchIndex&c.entryMask] = microbatch
		}
	}
}

// entryAt returns the cells of an entry.
func (c *Frames[T]) entryAt(batchIndex int) []Cell[T] {
	return c.entries[(batchIndex&c.entryMask)*len(c.Config.Parts):][:len(c.Config.Parts)]
}

// part returns the cell of a part of an entry.
func (c *Frames[T]) part(batchIndex, part int) *Cell[T] {
	return &c.entries[(batchIndex&c.entryMask)*len(c.Config.Parts)+part]
}
