package fit

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// ErrSnapshot is wrapped by errors about snapshots that give no profile.
var ErrSnapshot = errors.New("fit: no profile in the snapshot")

// maxEvents is the maximum number of allocations of a microbatch.
const maxEvents = 1 << 16

// FromSnapshots returns the profile of stages from PyTorch's snapshots. Each snapshot records the
// forward and the whole backward of one microbatch on one stage; a single snapshot is used for all
// stages. FromSnapshots also returns the resident bytes of each stage: the bytes that are live at
// the end of the trace.
//
// A trace does not record where the backward begins. FromSnapshots assumes that the forward ends when the
// number of live bytes is highest, and that all of these bytes are saved. Peaks of several microbatches are
// therefore upper bounds. A trace does not record transfers between stages either, and the profile has
// none.
func FromSnapshots(list []*snapshot.Snapshot, stages int) (*layout.Profile, []int64, error) {
	if len(list) != 1 && len(list) != stages {
		return nil, nil, diagnostic.Errorf(ErrSnapshot, "there are %d snapshots for %d stages: give one for each stage, or one for all", len(list), stages)
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
		p.StageInfo = append(p.StageInfo, schedule.StageInfo{})
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
		return nil, diagnostic.Errorf(ErrSnapshot, "it has no trace: call torch.cuda.memory._record_memory_history before the step")
	}
	trace := snap.Traces[0]
	pairs := map[int]int{} // from the index of a buffer's allocation to that of its release, and back
	open := map[int64]int{}
	for i := range trace {
		switch e := &trace[i]; e.Action {
		case snapshot.Alloc:
			open[e.Address] = i
		case snapshot.FreeCompleted:
			if born, known := open[e.Address]; known && trace[born].Size > 0 {
				pairs[born], pairs[i] = i, born
			}
			delete(open, e.Address)
		}
	}
	if n := len(pairs) / 2; n == 0 || n > maxEvents {
		return nil, diagnostic.Errorf(ErrSnapshot, "its trace allocates and frees %d buffers: record one microbatch, with 1 to %d", n, maxEvents)
	}
	events := slices.Sorted(maps.Keys(pairs))
	turn := 0 // the event after which the number of live bytes is highest
	var live, most int64
	for _, i := range events {
		if pairs[i] < i {
			live -= trace[pairs[i]].Size
		} else if live += trace[i].Size; live > most {
			most, turn = live, i
		}
	}
	s := &layout.StageProfile{Stage: "snapshot", Forward: &layout.Call{}, Whole: &layout.Call{}}
	refs := map[int]layout.Ref{} // by the index of the allocation
	for _, i := range events {
		call := s.Forward
		if i > turn {
			call = s.Whole
		}
		if born := pairs[i]; born < i {
			call.Events = append(call.Events, layout.RefChange{Op: layout.Release, Ref: refs[born]})
			continue
		}
		b := layout.Buffer{Bytes: trace[i].Size, Class: memory.Workspace}
		if i <= turn && pairs[i] > turn {
			b.Class = memory.Saved
		}
		if frames := trace[i].Frames; len(frames) > 0 {
			b.Name = fmt.Sprintf("%s, %s:%d", frames[0].Name, frames[0].Filename, frames[0].Line)
		}
		refs[i] = layout.Ref{Kind: layout.Own, Index: len(s.Buffers)}
		s.Buffers = append(s.Buffers, b)
		call.Events = append(call.Events, layout.RefChange{Op: layout.Alloc, Ref: refs[i]})
	}
	setSlots(s)
	return s, nil
}
