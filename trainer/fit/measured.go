package fit

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// ErrSnapshot is wrapped by errors about snapshots that give no profile.
var ErrSnapshot = errors.New("fit: no profile in the snapshot")

// maxEvents is the maximal number of allocations of a microbatch.
const maxEvents = 1 << 16

// FromSnapshots returns the profile of stages from PyTorch's snapshots. Each snapshot records the
// forward and the whole backward of one microbatch on one stage; a single snapshot is used for all
// stages. FromSnapshots also returns the resident bytes of each stage: the bytes that are live at
// the end of the trace.
//
// A trace does not record where the backward begins. FromSnapshots assumes that the forward ends
// when most bytes are live, and that all of these are saved, so peaks of several microbatches are
// upper bounds. A trace does not record transfers between stages either, and the profile has none.
func FromSnapshots(list []*snapshot.Snapshot, stages int) (*layout.Profile, []int64, error) {
	if len(list) != 1 && len(list) != stages {
		return nil, nil, fmt.Errorf("%w: there are %d snapshots for %d stages: give one for each stage, or one for all", ErrSnapshot, len(list), stages)
	}
	p := &layout.Profile{Shapes: []layout.ShapeProfile{{Name: "snapshot"}}}
	var resident []int64
	for stage := range stages {
		snap := list[stage%len(list)]
		one, err := measured(snap)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: of stage %d", err, stage)
		}
		p.Shapes[0].Stages = append(p.Shapes[0].Stages, *one)
		p.Facts = append(p.Facts, schedule.Facts{})
		var live int64
		for i := range snap.Segments {
			live += snap.Segments[i].Sizes().Requested
		}
		resident = append(resident, live)
	}
	return p, resident, nil
}

// measured returns the profile of a stage: the buffers that the trace both allocates and frees.
func measured(snap *snapshot.Snapshot) (*layout.StageProfile, error) {
	if len(snap.Traces) == 0 || len(snap.Traces[0]) == 0 {
		return nil, fmt.Errorf("%w: it has no trace: call torch.cuda.memory._record_memory_history before the step", ErrSnapshot)
	}
	trace := snap.Traces[0]
	ends := map[int]int{} // index of a buffer's release, by the index of its allocation
	open := map[int64]int{}
	for i := range trace {
		switch e := &trace[i]; e.Action {
		case snapshot.Alloc:
			open[e.Address] = i
		case snapshot.FreeCompleted:
			if born, known := open[e.Address]; known {
				ends[born] = i
				delete(open, e.Address)
			}
		}
	}
	if len(ends) == 0 || len(ends) > maxEvents {
		return nil, fmt.Errorf("%w: its trace allocates and frees %d buffers: record one microbatch, with 1 to %d", ErrSnapshot, len(ends), maxEvents)
	}
	turn := fullest(trace, ends)
	s := &layout.StageProfile{Stage: "snapshot", Forward: &layout.Call{}, Whole: &layout.Call{}}
	refs := map[int]layout.RefChange{} // by the index of a buffer's release
	for i := range trace {
		call := s.Forward
		if i > turn {
			call = s.Whole
		}
		if release, is := refs[i]; is {
			call.Events = append(call.Events, release)
		}
		end, is := ends[i]
		if !is || trace[i].Size < 1 {
			continue
		}
		class := memory.Workspace
		if i <= turn && end > turn {
			class = memory.Saved
		}
		ref := layout.Ref{Kind: layout.Own, Index: len(s.Buffers)}
		s.Buffers = append(s.Buffers, layout.Buffer{Name: site(&trace[i]), Bytes: trace[i].Size, Class: class})
		call.Events = append(call.Events, layout.RefChange{Op: layout.Alloc, Ref: ref})
		refs[end] = layout.RefChange{Op: layout.Release, Ref: ref}
	}
	return s, nil
}

// fullest returns the event after which the bytes of buffers that the trace frees are highest.
func fullest(trace []snapshot.Entry, ends map[int]int) (turn int) {
	freed := map[int]int64{}
	var live, most int64
	for i := range trace {
		live -= freed[i]
		if end, is := ends[i]; is {
			live += trace[i].Size
			freed[end] = trace[i].Size
			if live > most {
				most, turn = live, i
			}
		}
	}
	return turn
}

// site returns the function and line that allocated a buffer.
func site(e *snapshot.Entry) string {
	if len(e.Frames) == 0 {
		return ""
	}
	f := e.Frames[0]
	return fmt.Sprintf("%s, %s:%d", f.Name, f.Filename, f.Line)
}
