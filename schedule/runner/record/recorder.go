package record

import (
	"context"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner/internal/calls"
	"github.com/weir-ml/weir/stages"
)

func isProfiled[T any](stage stages.Stage[T]) bool {
	_, ok := stage.(Profiled)
	return ok
}

// recorder performs a dry run of all ranks.
type recorder[T any] struct {
	dry    *calls.Dry[T]
	spaces []memory.Watched[T] // of the ranks
	// residents holds, for each stage, the resident buffers that it hands over: their numbers in the
	// stage's profile of the current shape, by serial number.
	residents []map[uint64]int
}

// at returns the Caller of a stage's rank.
func (r *recorder[T]) at(s int) *calls.Caller[T] {
	return r.dry.Ranks[r.dry.Ranks[0].Placement.Rank[s]]
}

// params returns every stage's uses of parameters.
func (r *recorder[T]) params() [][]layout.Param {
	all := make([][]layout.Param, len(r.dry.Ranks[0].Stages))
	for s := range all {
		rank := r.at(s)
		for _, param := range rank.Stages[s].Params {
			p := layout.Param{Name: param.Name, Frozen: param.Contributes == frames.Frozen}
			if !p.Frozen {
				p.Bytes = max(rank.Space.Bytes(param.Grad), 4*int64(param.Elements)) // Grad may hold only a replica's part
			}
			all[s] = append(all[s], p)
		}
	}
	return all
}

// shape records the entries of a shape class, which the ranks' sources supply, and the stage calls.
func (r *recorder[T]) shape(ctx context.Context, name string) (layout.ShapeProfile, error) {
	recorded := layout.ShapeProfile{Name: name, Stages: make([]layout.StageProfile, len(r.dry.Ranks[0].Stages))}
	r.residents = make([]map[uint64]int, len(recorded.Stages))
	for _, set := range r.sets() {
		entry, err := r.entry(ctx, set)
		if err != nil {
			return recorded, fmt.Errorf("the entry with parts %q: %w", r.names(set), err)
		}
		recorded.Entries = append(recorded.Entries, entry)
	}
	allProfiled := true
	for s := range recorded.Stages {
		st := &r.at(s).Stages[s]
		recorded.Stages[s].Stage = st.Spec.Name
		allProfiled = allProfiled && isProfiled(st.Stage)
	}
	if !allProfiled {
		for _, split := range []bool{false, true} {
			if err := r.pass(ctx, schedule.Training, split, recorded.Stages); err != nil {
				return recorded, err
			}
		}
		if err := r.pass(ctx, schedule.ForwardOnly, false, recorded.Stages); err != nil {
			return recorded, err
		}
	}
	for s := range recorded.Stages {
		if stage, ok := r.at(s).Stages[s].Stage.(Profiled); ok {
			profile, err := stage.Profile(name)
			if err != nil {
				return recorded, fmt.Errorf("the profile of stage %d (%s): %w", s, recorded.Stages[s].Stage, err)
			}
			recorded.Stages[s] = profile
		}
		if err := r.recordWhole(s, &recorded.Stages[s]); err != nil {
			return recorded, err
		}
	}
	return recorded, nil
}

// sets returns every set of parts that a rank may want: all unions of the sets that stages read.
func (r *recorder[T]) sets() []uint64 {
	sets := []uint64{0}
	for s := range r.dry.StageInfo {
		evaluation, training := r.reads(s)
		for _, reads := range []uint64{evaluation, training} {
			for _, set := range sets {
				if joined := set | reads; !slices.Contains(sets, joined) {
					sets = append(sets, joined)
				}
			}
		}
	}
	slices.Sort(sets)
	return sets
}

// reads returns the parts that a stage reads in evaluation and in training.
func (r *recorder[T]) reads(s int) (evaluation, training uint64) {
	st, reads := &r.at(s).Stages[s], &r.dry.StageInfo[s].Reads
	evaluation, training = reads[schedule.F], reads[schedule.F]
	if st.GradientWanted {
		training |= reads[schedule.I]
		if !st.Spec.Frozen {
			training |= reads[schedule.B] | reads[schedule.W]
		}
	}
	return evaluation, training
}

// names returns the names of the parts in a set.
func (r *recorder[T]) names(set uint64) []string {
	var names []string
	for part, name := range r.dry.Ranks[0].Parts {
		if set>>part&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// wanted returns the parts that the stages of a rank read in training.
func (r *recorder[T]) wanted(rank int) (set uint64) {
	for s, placed := range r.dry.Ranks[0].Placement.Rank {
		if placed == rank {
			_, training := r.reads(s)
			set |= training
		}
	}
	return set
}

// entry records the source's call for the entry of a rank that reads the parts in set. It uses the source
// of such a rank, or of the first rank if there is none.
func (r *recorder[T]) entry(ctx context.Context, set uint64) (e layout.EntryProfile, err error) {
	rank := r.dry.Ranks[max(0, slices.IndexFunc(r.dry.Ranks, func(c *calls.Caller[T]) bool { return r.wanted(c.Rank) == set }))]
	rec := r.record(rank, nil)
	defer r.stop(rank)
	r.begin(rank, frames.Train, set)
	if err := rec.call("Next", func() error { return rank.Fill(ctx, 0) }); err != nil {
		return layout.EntryProfile{}, err
	}
	e = layout.EntryProfile{Parts: set, Out: make([]layout.Ref, len(rank.Parts))}
	for part := range e.Out {
		if h, held := rank.Frames.EntryPart(0, part); held {
			e.Out[part] = rec.handedOver(h)
		}
	}
	e.Buffers, e.Events = rec.buffers, rec.events
	byPart(&e)
	return e, rec.checkEnds("the source")
}

// byPart puts an entry's buffers and changes into an order that does not depend on its source: first all
// allocations of class Entry, in the order of the parts, then the other changes, and last the releases of
// parts that the rank does not read.
func byPart(e *layout.EntryProfile) {
	var order []int // the old numbers
	for _, ref := range e.Out {
		if ref.Kind == layout.Own && e.Buffers[ref.Index].Class == memory.Entry && !slices.Contains(order, ref.Index) {
			order = append(order, ref.Index)
		}
	}
	for _, first := range []bool{true, false} {
		for number, b := range e.Buffers {
			if (b.Class == memory.Entry) == first && !slices.Contains(order, number) {
				order = append(order, number)
			}
		}
	}
	renamed := func(ref layout.Ref) layout.Ref {
		if ref.Kind == layout.Own {
			ref.Index = slices.Index(order, ref.Index)
		}
		return ref
	}
	buffers, events := make([]layout.Buffer, len(order)), []layout.RefChange(nil)
	for number, old := range order {
		if buffers[number] = e.Buffers[old]; buffers[number].Class == memory.Entry {
			events = append(events, layout.RefChange{Op: layout.Alloc, Ref: layout.Ref{Kind: layout.Own, Index: number}})
		}
	}
	var unwanted []layout.RefChange
	for _, event := range e.Events {
		handed := slices.Contains(e.Out, event.Ref)
		switch event.Ref = renamed(event.Ref); {
		case buffers[event.Ref.Index].Class != memory.Entry:
			events = append(events, event)
		case event.Op == layout.Alloc: // already emitted
		case handed:
			events = append(events, event)
		default:
			unwanted = append(unwanted, event)
		}
	}
	slices.SortStableFunc(unwanted, func(a, b layout.RefChange) int { return a.Ref.Index - b.Ref.Index })
	for part := range e.Out {
		e.Out[part] = renamed(e.Out[part])
	}
	e.Buffers, e.Events = buffers, append(events, unwanted...)
}

// begin prepares the frames of a rank for one microbatch.
func (r *recorder[T]) begin(rank *calls.Caller[T], pass frames.Pass, parts uint64) {
	ones := slices.Repeat([]int{1}, len(rank.Stages))
	plan := &schedule.Plan{StageWindows: ones, SendWindows: ones}
	rank.Frames.Begin(0, pass, frames.Extent{Plan: plan, Wanted: []uint64{parts}, EntryWindow: 1})
}

// stop releases everything that the frames of a rank still hold.
func (r *recorder[T]) stop(rank *calls.Caller[T]) {
	r.spaces[rank.Rank].Watch(nil)
	rank.Frames.Dry(nil)
	rank.Abort()
}

// recordWhole records a stage's UNSHARD and ZERO_GRAD, which belong to no microbatch.
func (r *recorder[T]) recordWhole(s int, profile *layout.StageProfile) error {
	if r.dry.Whole == nil {
		return nil
	}
	rank := r.at(s)
	for _, made := range []struct {
		kind  schedule.Kind
		place effects.BufferKind
		name  string
		to    **layout.Call
	}{
		{schedule.Unshard, effects.Gathered, "weight", &profile.Gather},
		{schedule.ZeroGrad, effects.Accumulator, "gradient", &profile.ZeroGrad},
	} {
		defer r.stop(rank)
		rec := r.record(rank, profile.Buffers)
		if err := rec.call(made.kind.String(), func() error { return r.dry.Whole(s, made.place) }); err != nil {
			return fmt.Errorf("%v of stage %d (%s): %w", made.kind, s, profile.Stage, err)
		}
		out := rec.allHandedOver(rank.Frames.Handles(made.place, s, 0))
		rec.name(out, nil, nil, func(param int) string {
			return fmt.Sprintf("whole %s of %q", made.name, rank.Stages[s].Params[param].Name)
		})
		if err := rec.checkEnds("the runner"); err != nil {
			return err
		}
		if len(rec.events) > 0 {
			*made.to, profile.Buffers = &layout.Call{Events: rec.events, Out: out}, rec.buffers
		}
	}
	return nil
}
