package fit

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// ErrSnapshot is wrapped by errors about snapshots that no profile can be made of.
var ErrSnapshot = errors.New("fit: no profile in the snapshot")

// maxEvents bounds the allocations of a microbatch.
const maxEvents = 1 << 16

// FromSnapshots returns the profile of stages of which each was recorded by PyTorch: the
// forward and the backward of one microbatch, with the whole backward behind the forward. One
// snapshot stands for all stages. It also returns the bytes that each stage has beside it: what
// is live at the end of the trace.
//
// A trace does not tell where the backward begins. The forward is taken to end when most is live,
// and all of that to be saved, so that peaks of several microbatches are upper bounds. Nor does it
// tell what crosses between stages: the profile has no transfers.
func FromSnapshots(list []*snapshot.Snapshot, stages int) (*layout.Profile, []int64, error) {
	if len(list) != 1 && len(list) != stages {
		return nil, nil, fmt.Errorf("%w: there are %d snapshots of %d stages: give one for each, or one for all", ErrSnapshot, len(list), stages)
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

// measured returns the profile of a stage: the events of the trace but for what was there
// before it and what is there behind it.
func measured(snap *snapshot.Snapshot) (*layout.StageProfile, error) {
	if len(snap.Traces) == 0 || len(snap.Traces[0]) == 0 {
		return nil, fmt.Errorf("%w: it has no trace: call torch.cuda.memory._record_memory_history before the step", ErrSnapshot)
	}
	trace := snap.Traces[0]
	ends := map[int]int{} // of an allocation, both by their places in the trace
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
		return nil, fmt.Errorf("%w: %d buffers begin and end in its trace: record one microbatch, with 1 to %d", ErrSnapshot, len(ends), maxEvents)
	}
	turn := fullest(trace, ends)
	s := &layout.StageProfile{Stage: "snapshot", Forward: &layout.Call{}, Whole: &layout.Call{}}
	refs := map[int]layout.RefChange{} // by the end of a buffer
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

// fullest returns the event after which most bytes of buffers that end are live.
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

// site names what has allocated a buffer.
func site(e *snapshot.Entry) string {
	if len(e.Frames) == 0 {
		return ""
	}
	f := e.Frames[0]
	return fmt.Sprintf("%s, %s:%d", f.Name, f.Filename, f.Line)
}
