package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/stages"
)

// ErrUnended is returned by Record for a reference that nothing ends: what a stage
// allocates or retains and neither releases nor hands over.
var ErrUnended = errors.New("runner: nothing ends a reference")

// Shape is a shape class of microbatches: those for which every stage allocates the
// same.
type Shape[T any] struct {
	Name string
	// Source gives an entry of the class as often as it is asked.
	Source Source[T]
}

// Profiled is an optional ability of a stage: to say what it allocates, keeps and
// releases for a microbatch of a shape class. Where it allocates elsewhere than in the
// rank's space, a dry run sees nothing of it. Record then takes its word.
type Profiled interface {
	Profile(shape string) (layout.StageProfile, error)
}

// Record finds out what every stage allocates, keeps and releases, for every shape
// class, in a dry run: it calls each stage once for each of its calls, with inputs and
// gradients of its own. Nothing is computed where the spaces are those of
// kernels.Null, which is why a model is made a second time for this, on Null devices.
//
// The configuration is that of all ranks that will run, but for the spaces, which must
// be memory.Watched, and the devices of the stages. Unshard and Reduce, where they are
// set, are called once for each stage. Values read in a dry run are zeros: what a size
// depends on must be told with Microbatch.AtMost or Entry.AtMost.
//
// What a stage allocates or retains in a call, and neither releases nor hands over
// until the end of its last call, is ErrUnended, with stage, call and class.
func Record[T any](ctx context.Context, cfg Config[T], shapes ...Shape[T]) (*layout.Profile, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if len(shapes) == 0 {
		return nil, errors.New("runner: no shapes to record")
	}
	all, err := New(cfg)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if len(cfg.Spaces) != all.cfg.World.Ranks {
		return nil, fmt.Errorf("runner: a dry run of %d of %d ranks: give the spaces of all", len(cfg.Spaces), all.cfg.World.Ranks)
	}
	first := all.workers[0]
	r := &recording[T]{ranks: all.workers, copied: all.cfg.World.Copy}
	for rank, runner := range r.ranks {
		watched, ok := runner.space.(memory.Watched[T])
		if !ok {
			return nil, fmt.Errorf("runner: rank %d: a dry run needs a space that is memory.Watched, such as that of kernels.Null, and not %T", rank, runner.space)
		}
		r.spaces = append(r.spaces, watched)
	}
	t := &layout.Profile{
		Parts: slices.Clone(first.parts), Facts: slices.Clone(first.planner.passes.Facts), Params: make([][]layout.Param, len(first.stages)),
	}
	for s := range t.Params {
		t.Params[s] = r.params(s)
	}
	for _, shape := range shapes {
		if shape.Source == nil {
			return nil, fmt.Errorf("runner: shape %q has no source", shape.Name)
		}
		if err := all.share(shape.Source); err != nil {
			return nil, fmt.Errorf("runner: shape %q: %w", shape.Name, err)
		}
		recorded, err := r.shape(ctx, shape)
		if err != nil {
			return nil, fmt.Errorf("runner: recording shape %q: %w", shape.Name, err)
		}
		t.Shapes = append(t.Shapes, recorded)
	}
	return t, nil
}

// recording is a dry run.
type recording[T any] struct {
	ranks  []*worker[T]
	spaces []memory.Watched[T] // by rank
	copied func(from, to int, h T) (T, error)
	tables []map[uint64]int // by stage, of the shape that is recorded: see tape
}

// tape returns an empty tape for calls on a rank, which go on numbering buffers.
func (r *recording[T]) tape(rank int, buffers []layout.Buffer) *tape[T] {
	runner := r.ranks[rank]
	return &tape[T]{
		space: runner.space, watched: r.spaces[rank], frames: runner.frames, buffers: slices.Clone(buffers),
		known: map[uint64]layout.Ref{}, tables: map[uint64]int{}, owed: map[layout.Ref]int{}, makers: map[layout.Ref]string{},
	}
}

// at returns the runner of a stage's rank.
func (r *recording[T]) at(s int) *worker[T] { return r.ranks[r.ranks[0].placement.Rank[s]] }

// params returns a stage's uses of parameters.
func (r *recording[T]) params(s int) []layout.Param {
	runner := r.at(s)
	var list []layout.Param
	for _, param := range runner.stages[s].params {
		p := layout.Param{Name: param.Name, Frozen: param.Contributes == frames.Frozen}
		if !p.Frozen {
			p.Bytes = runner.space.Bytes(param.Grad)
		}
		list = append(list, p)
	}
	return list
}

// shape records one shape class: its entries, and the stages in evaluation, with a
// whole backward and with a split one.
func (r *recording[T]) shape(ctx context.Context, shape Shape[T]) (layout.ShapeProfile, error) {
	recorded := layout.ShapeProfile{Name: shape.Name, Stages: make([]layout.StageProfile, len(r.ranks[0].stages))}
	r.tables = make([]map[uint64]int, len(recorded.Stages))
	for _, set := range r.sets() {
		entry, err := r.entry(ctx, set)
		if err != nil {
			return recorded, fmt.Errorf("the entry with parts %q: %w", r.names(set), err)
		}
		recorded.Entries = append(recorded.Entries, entry)
	}
	silent := false // there is a stage that a dry run must ask
	for s := range recorded.Stages {
		st := &r.at(s).stages[s]
		recorded.Stages[s].Stage = st.spec.Name
		silent = silent || !isProfiled(st.Stage)
	}
	if silent {
		for _, way := range []way{whole, split, evaluated} {
			if err := r.pass(ctx, way, recorded.Stages); err != nil {
				return recorded, err
			}
		}
	}
	for s := range recorded.Stages {
		if err := r.aside(ctx, s, &recorded.Stages[s]); err != nil {
			return recorded, err
		}
	}
	return recorded, r.told(shape.Name, recorded.Stages)
}

// told puts in what stages say of themselves.
func (r *recording[T]) told(shape string, profile []layout.StageProfile) error {
	for s := range profile {
		if stage, ok := r.at(s).stages[s].Stage.(Profiled); ok {
			t, err := stage.Profile(shape)
			if err != nil {
				return fmt.Errorf("the profile of stage %d (%s): %w", s, profile[s].Stage, err)
			}
			profile[s] = t
		}
	}
	return nil
}

// sets returns every set of parts that a rank may want: those that stages read,
// together in all ways.
func (r *recording[T]) sets() []uint64 {
	sets := []uint64{0}
	for s := range r.ranks[0].stages {
		for _, reads := range r.reads(s) {
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

// reads returns what a stage reads in evaluation and in training.
func (r *recording[T]) reads(s int) [2]uint64 {
	st, facts := &r.at(s).stages[s], &r.at(s).planner.passes.Facts[s].Reads
	switch {
	case !st.gradientWanted:
		return [2]uint64{facts[schedule.F], facts[schedule.F]}
	case st.spec.Frozen:
		return [2]uint64{facts[schedule.F], facts[schedule.F] | facts[schedule.I]}
	}
	return [2]uint64{facts[schedule.F], facts[schedule.F] | facts[schedule.B] | facts[schedule.I] | facts[schedule.W]}
}

// names returns the names of the parts in a set.
func (r *recording[T]) names(set uint64) []string {
	var names []string
	for part, name := range r.ranks[0].parts {
		if set>>part&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// entry records what the source does for an entry with these parts. It is the source
// of a rank that reads them, or else that of the first one.
func (r *recording[T]) entry(ctx context.Context, set uint64) (e layout.Entry, err error) {
	rank := max(0, slices.IndexFunc(r.ranks, func(runner *worker[T]) bool { return r.wanted(runner.rank) == set }))
	runner := r.ranks[rank]
	tape := r.tape(rank, nil)
	defer r.stop(runner)
	r.begin(runner, frames.Train, set)
	if err := tape.record("Next", func() error { return runner.fill(ctx, 0) }); err != nil {
		return layout.Entry{}, err
	}
	e = layout.Entry{Parts: set, Out: make([]layout.Ref, len(runner.parts))}
	for part := range e.Out {
		if h, there := runner.frames.Entered(0, part); there {
			e.Out[part] = tape.handed(h)
		}
	}
	e.Buffers, e.Events = tape.buffers, tape.events
	byPart(&e)
	return e, tape.settled("the source")
}

// byPart puts an entry in an order that does not depend on that of its source: what it
// allocates of class Entry comes first, in the order of the parts, and all of it is there at
// once. Parts that nobody wants end last.
func byPart(e *layout.Entry) {
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
		case event.Op == layout.Alloc: // is there
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

// wanted returns what the stages of a rank read in training.
func (r *recording[T]) wanted(rank int) (set uint64) {
	for s := range r.ranks[0].stages {
		if r.ranks[0].placement.Rank[s] == rank {
			set |= r.reads(s)[1]
		}
	}
	return set
}

// begin makes a rank's context ready for one microbatch.
func (r *recording[T]) begin(runner *worker[T], pass frames.Pass, parts uint64) {
	ones := slices.Repeat([]int{1}, len(runner.stages))
	plan := &schedule.Plan{Windows: ones, Outgoing: ones}
	runner.plan = &program{planned: &planned{Plan: plan}}
	runner.frames.Begin(0, pass, frames.Extent{Plan: plan, Wanted: []uint64{parts}, Entries: 1})
}

// stop ends what a rank's context still holds.
func (r *recording[T]) stop(runner *worker[T]) {
	r.spaces[runner.rank].Watch(nil)
	runner.frames.Dry(nil)
	runner.abort()
}

// aside records the calls that no microbatch has: UNSHARD and REDUCE_GRAD.
func (r *recording[T]) aside(ctx context.Context, s int, t *layout.StageProfile) error {
	runner := r.at(s)
	defer r.stop(runner)
	if gather := runner.cfg.Replicas.Unshard; gather != nil {
		tape := r.tape(runner.rank, t.Buffers)
		var out []T
		if err := tape.record("UNSHARD", func() (err error) { out, err = gather(ctx, s); return err }); err != nil {
			return fmt.Errorf("UNSHARD of stage %d (%s): %w", s, t.Stage, err)
		}
		t.Gather = &layout.Call{Events: tape.events, Out: tape.handedAll(out, 0)}
		t.Buffers = tape.buffers
		if err := tape.settled("Replicas.Unshard"); err != nil {
			return err
		}
		if runner.cfg.Replicas.Reshard != nil {
			runner.cfg.Replicas.Reshard(s)
		}
		runner.giveBack(out)
	}
	if reduce := runner.cfg.Replicas.Reduce; reduce != nil {
		tape := r.tape(runner.rank, t.Buffers)
		if err := tape.record("REDUCE_GRAD", func() error { return reduce(ctx, s) }); err != nil {
			return fmt.Errorf("REDUCE_GRAD of stage %d (%s): %w", s, t.Stage, err)
		}
		t.Reduce = &layout.Call{Events: tape.events}
		t.Buffers = tape.buffers
		return tape.settled("Replicas.Reduce")
	}
	return nil
}

// isProfiled reports whether a stage speaks for itself.
func isProfiled[T any](stage stages.Stage[T]) bool {
	_, ok := stage.(Profiled)
	return ok
}
