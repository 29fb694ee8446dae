package layout

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// This file executes the copies of saved state between a rank's memory and its far memory. An offloaded
// slot has two allocations in the rank's memory, from F to WAIT_OFFLOAD and from RELOAD to the action
// that takes the slot. It has one in far memory, from OFFLOAD to the action that ends the copy.

// maxSlots is the number of slots of a stage that Plan.OffloadSlots can name.
const maxSlots = 64

// move executes WAIT_OFFLOAD, which releases the allocations of the slots, or RELOAD, which allocates
// them again.
func (t *trace) move(kind schedule.Kind, s, m int32) error {
	own, in := t.held[slot{effects.Saved, s, m}].allocations, t.held[slot{effects.Input, s, m}].allocations
	return t.eachOffloaded(s, m, func(ref Ref, o origin) error {
		list := own
		if ref.Kind == In {
			list = in
		}
		if ref.Index >= len(list) || list[ref.Index] < 0 {
			return diagnostic.Errorf(ErrProfile, "it offloads %v, which is not allocated", ref)
		}
		it := t.allocations[list[ref.Index]]
		switch {
		case kind == schedule.Reload:
			var err error
			list[ref.Index], err = t.allocate(it.bytes, it.atMost, it.class, o)
			return err
		case it.refs != 1:
			return diagnostic.Errorf(ErrProfile, "%s is offloaded, but has %d references: expected one, from its slot", t.profile.name(o, t.shape(int(m))), it.refs)
		}
		return t.release(list[ref.Index])
	})
}

// executeFar executes the effects of an action on far memory.
func (t *trace) executeFar(kind schedule.Kind, s, m int32, ends effects.Set) error {
	if kind == schedule.Offload {
		var copies []int32
		err := t.eachOffloaded(s, m, func(ref Ref, o origin) error {
			size, err := t.ports.size(t.shape(int(m)), int(s), ref)
			if err != nil {
				return diagnostic.Errorf(ErrProfile, "it offloads %v: %w", ref, err)
			}
			i, err := t.allocate(size.bytes, size.atMost, memory.Saved, o)
			copies = append(copies, i)
			return err
		})
		t.put(slot{effects.Far, s, m}, copies)
		return err
	}
	if ends>>effects.Far&1 == 0 {
		return nil
	}
	return t.end(slot{effects.Far, s, m})
}

// eachOffloaded calls do for every offloaded slot of a stage.
func (t *trace) eachOffloaded(s, m int32, do func(Ref, origin) error) error {
	stage := t.profile.stage(t.shape(int(m)), int(s))
	for _, n := range bits(t.plan.OffloadSlots[s]) {
		if n >= len(stage.Slots) || stage.Slots[n].Kind != Own && stage.Slots[n].Kind != In {
			return diagnostic.Errorf(ErrProfile, "stage %d (%s) saves nothing of its own in slot %d, which the plan offloads", s, stage.Stage, n)
		}
		o := origin{kind: ofStage, stage: s, microbatch: m, index: int32(stage.Slots[n].Index)}
		if stage.Slots[n].Kind == In {
			o.kind = ofInput
		}
		if err := do(stage.Slots[n], o); err != nil {
			return err
		}
	}
	return nil
}

// offloads reports whether a program offloads slots.
func offloads(program []schedule.Segment) bool {
	return slices.ContainsFunc(program, func(s schedule.Segment) bool {
		return slices.ContainsFunc(s.Body, func(a schedule.Action) bool { return a.Kind() == schedule.Offload })
	})
}

// OffloadSlots returns the slots to offload, in the form of schedule.Plan.OffloadSlots. For each stage of a placement,
// it takes slots, the largest first, and passes over a slot if the sum with it would exceed this share of the bytes
// that the stage saves in slots. Sizes are those of the first shape class. It considers only the first 64 slots of a
// stage (see [Profile.NearSlots]), and of these only slots that hold the only reference to their buffer after the
// forward.
func (t *Profile) OffloadSlots(placement *schedule.Placement, share float64) []uint64 {
	away, _ := t.offloadable(placement, share)
	return away
}

// NearSlots describes the slots of a stage that the share would include, but that stay near because
// Plan.OffloadSlots can name only the first 64 slots of a stage.
type NearSlots struct {
	Stage int // the index of the stage in the placement
	Name  string
	Slots int   // the number of these slots
	Bytes int64 // their size for a microbatch of the first shape class
}

// String names the stage and suggests a change.
func (n NearSlots) String() string {
	return fmt.Sprintf("stage %d (%s) keeps %d slots near, %d bytes for each microbatch: only the first %d slots of a stage can be offloaded; divide the model into more stages", n.Stage, n.Name, n.Slots, n.Bytes, maxSlots)
}

// NearSlots returns the stages with slots that [Profile.OffloadSlots] omits because their numbers are too high.
func (t *Profile) NearSlots(placement *schedule.Placement, share float64) []NearSlots {
	_, near := t.offloadable(placement, share)
	return near
}

func (t *Profile) offloadable(placement *schedule.Placement, share float64) (away []uint64, all []NearSlots) {
	away = make([]uint64, placement.Stages())
	ports := newPorts(&schedule.Plan{Placement: *placement}, t)
	for s := range away {
		st := t.stage(0, s)
		bytes, order := make([]int64, len(st.Slots)), []int(nil)
		total := 0.0
		for n, ref := range st.Slots {
			if ref.Kind != Own && ref.Kind != In {
				continue
			}
			size, err := ports.size(0, s, ref)
			if bytes[n] = size.bytes; err != nil || slices.Index(st.Slots, ref) < n { // the same buffer twice
				continue
			}
			total += float64(size.bytes)
			if t.heldBySlotAlone(placement, s, ref) {
				order = append(order, n)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(bytes[b], bytes[a]) })
		left, near := share*total, NearSlots{Stage: s, Name: st.Stage}
		for _, n := range order {
			switch {
			case n < maxSlots && float64(bytes[n]) <= left:
				left -= float64(bytes[n])
				away[s] |= 1 << n
			case n >= maxSlots && float64(near.Bytes+bytes[n]) <= left:
				near.Slots++
				near.Bytes += bytes[n]
			}
		}
		if near.Slots > 0 {
			all = append(all, near)
		}
	}
	return away, all
}

// heldBySlotAlone reports whether, for every shape class, the slot holds the only reference to its buffer
// after F. For an input this holds if it was received, or if the previous stage is on the same rank and
// keeps no reference to the buffer.
func (t *Profile) heldBySlotAlone(placement *schedule.Placement, s int, ref Ref) bool {
	for shape := range t.Shapes {
		st := t.stage(shape, s)
		if st.Forward == nil || st.Forward.references(ref) != 1 || slices.Contains(st.Forward.Out, ref) {
			return false
		}
		if ref.Kind == Own {
			if st.Buffers[ref.Index].Class == memory.Resident {
				return false
			}
			continue
		}
		if placement.First(s) {
			return false
		}
		before := t.stage(shape, s-1)
		if placement.Rank[s-1] == placement.Rank[s] {
			if before.Forward == nil || ref.Index >= len(before.Forward.Out) {
				return false
			}
			if out := before.Forward.Out[ref.Index]; out.Kind != Own || before.Buffers[out.Index].Class == memory.Resident || before.Forward.references(out) != 1 {
				return false
			}
		}
	}
	return true
}

// references returns the number of references to a buffer that remain after a call, including those that the call hands
// over.
func (c *Call) references(ref Ref) (n int) {
	for _, e := range c.Events {
		switch {
		case e.Ref != ref:
		case e.Op == Release:
			n--
		default:
			n++
		}
	}
	return n
}
