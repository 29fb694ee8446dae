package layout

import (
	"fmt"

	"github.com/weir-ml/weir/memory"
)

// allocation is one allocation of a traced program, from its birth to its death. A buffer of a
// profile is allocated once for each microbatch. A buffer of a placement problem is one or more
// allocations that share an offset.
type allocation struct {
	bytes        int64
	atMost       bool
	class        memory.Class
	refs         int32
	birth, death int32    // the numbers of the changes that allocate and release it; death is 0 while it is alive
	position     position // of its birth; if n repeats are skipped while it is alive, of the same birth n repeats later
	ordinal      int32    // its index among the births at its position
	inRepeat     int32    // number of changes in the repeat before its birth
	origin       origin
}

// position is an action of a program. Step end is an action after the last segment.
type position struct{ segment, repeat, index int32 }

// origin identifies the buffer of an allocation, for its name.
type origin struct {
	kind       originKind
	stage      int32 // for an entry, its index in ShapeProfile.Entries
	microbatch int32 // -1 for none
	index      int32
}

type originKind uint8

const (
	ofStage       originKind = iota // index into StageProfile.Buffers
	ofEntry                         // index into EntryProfile.Buffers
	ofInput                         // received: port of the stage's input
	ofGradient                      // received: port of the stage's output
	ofTiedUse                       // a gradient of another rank: parameter of the stage
	ofStageAlways                   // of a stage but no microbatch: index into StageProfile.Buffers
)

// names returns the names of the parts in a set. A part outside the profile is named by its
// number.
func (t *Profile) names(set uint64) (names []string) {
	for part := 0; set != 0; part, set = part+1, set>>1 {
		if set&1 == 1 && part < len(t.Parts) {
			names = append(names, t.Parts[part])
		} else if set&1 == 1 {
			names = append(names, fmt.Sprint("part ", part))
		}
	}
	return names
}

// name returns the name of a buffer and its owner, without the microbatch.
func (t *Profile) name(o origin, shape int) string {
	at := func(buffers []Buffer) string {
		if int(o.index) < len(buffers) && buffers[o.index].Name != "" {
			return buffers[o.index].Name
		}
		return fmt.Sprintf("buffer %d", o.index)
	}
	if o.kind == ofEntry {
		for part, ref := range t.Shapes[shape].Entries[o.stage].Out {
			if ref == (Ref{Own, int(o.index)}) && part < len(t.Parts) {
				return fmt.Sprintf("entry part %q", t.Parts[part])
			}
		}
		return fmt.Sprintf("entry buffer %d", o.index)
	}
	tmpl := t.stage(shape, int(o.stage))
	stage := fmt.Sprintf("stage %d (%s)", o.stage, tmpl.Stage)
	switch o.kind {
	case ofInput:
		return fmt.Sprintf("%s: received input %d", stage, o.index)
	case ofGradient:
		return fmt.Sprintf("%s: received gradient of output %d", stage, o.index)
	case ofTiedUse:
		return fmt.Sprintf("%s: gradient of parameter %d of another rank", stage, o.index)
	}
	return stage + ": " + at(tmpl.Buffers)
}
