package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/jsontext"
	"github.com/weir-ml/weir/schedule"
)

// readJSON reads Weir's JSON form.
func (f *File) readJSON(options Options) error {
	r := &jsonReader{Reader: jsontext.Of([]byte(f.text), f.Name, "the plan"), f: f, plan: &schedule.Plan{}}
	r.file()
	if fault := r.Fault(); fault != nil {
		return &Error{Name: f.Name, Line: fault.Line, Column: fault.Column, Text: fault.Text}
	}
	f.Plan = r.plan
	return f.checkOptions(options)
}

// jsonReader extracts a plan from a text.
type jsonReader struct {
	*jsontext.Reader
	f      *File
	plan   *schedule.Plan
	frozen []int
	nested int64 // total number of actions in one repeat of each nested loop
}

// missing reports a fault at the end of the last object read.
func (r *jsonReader) missing(format string, args ...any) { r.Found("}", "expected "+format, args...) }

// number reads a whole number from low to high.
func (r *jsonReader) number(what string, low, high int) int {
	return int(r.Whole(what, int64(low), int64(high)))
}

func (r *jsonReader) numbers(what string, low, high int) []int {
	numbers := []int{}
	r.List(schedule.MaxStages, func() { numbers = append(numbers, r.number(what, low, high)) })
	return numbers
}

// file reads the whole object.
func (r *jsonReader) file() {
	var fields []string
	r.Object(func(name string) {
		fields = append(fields, name)
		known := slices.IndexFunc(jsonFields, func(f jsonField) bool { return f.name == name })
		switch {
		case known >= 0:
			jsonFields[known].read(r)
		case name == "costs":
			r.costs()
		case name == "programs":
			r.List(schedule.MaxStages, r.program)
		default:
			var names strings.Builder
			for _, f := range jsonFields {
				names.WriteString(f.name + ", ")
			}
			r.Unknown(names.String() + "costs or programs")
		}
	})
	for _, name := range [...]string{"name", "mode", "ranks", "placement", "microbatches", "programs"} {
		if !slices.Contains(fields, name) {
			r.missing("the field %s before it", name)
		}
	}
	switch {
	case !r.plan.HasTransfers():
		r.plan.Capacity = 0
	case !slices.Contains(fields, "capacity"):
		r.plan.Capacity = schedule.Unlimited
	}
	r.checkLengths()
	r.End(jsonSchema, slices.Contains(fields, "schema"))
}

// checkLengths checks that the lengths of the tables match the numbers of stages and ranks, so that the
// plan can be written.
func (r *jsonReader) checkLengths() {
	if r.Fault() != nil {
		return
	}
	p := r.plan
	stages, ranks := p.Placement.Stages(), p.Placement.Ranks
	if stages < 1 || stages > schedule.MaxStages {
		r.missing("a placement of 1 to %d stages before it", schedule.MaxStages)
	}
	if highest := slices.Max(append(p.Placement.Rank, 0)); highest >= ranks {
		r.missing("a placement on ranks 0 to %d before it", ranks-1)
	}
	if p.Placement.Copies > 0 && stages%p.Placement.Copies != 0 {
		r.missing("copies that divide the %d stages before it", stages)
	}
	for i, stage := range r.frozen {
		if stage >= stages || i > 0 && stage <= r.frozen[i-1] {
			r.missing("frozen stages, ascending, from 0 to %d before it", stages-1)
			return
		}
		if p.Frozen == nil {
			p.Frozen = make([]bool, stages)
		}
		p.Frozen[stage] = true
	}
	for _, wrong := range p.WrongLengths() {
		r.missing("%d %s before it, found %d", wrong.Want, strings.ToLower(wrong.Table), wrong.Len)
	}
}

func (r *jsonReader) runtime() {
	word := r.Word()
	runtime, known := schedule.ParseRuntime(word)
	if !known {
		r.Found(word, "expected weir or pytorch")
	}
	r.plan.Runtime = runtime
}

func (r *jsonReader) mode() {
	word := r.Word()
	mode, known := schedule.ParseMode(word)
	if !known {
		r.Found(word, "expected %q or %q", schedule.Training, schedule.ForwardOnly)
	}
	r.plan.Mode = mode
}

// facts reads the facts of a stage.
func (r *jsonReader) facts() schedule.Facts {
	var f schedule.Facts
	r.Object(func(name string) {
		switch name {
		case "frozen":
			f.Frozen = r.Flag()
		case "split":
			f.Split = r.Flag()
		case "recomputes":
			f.Recomputes = r.Flag()
		case "quantizes":
			f.Quantizes = r.Flag()
		case "reads":
			f.Reads = r.parts()
		default:
			r.Unknown("frozen, split, recomputes, quantizes or reads")
		}
	})
	return f
}

// parts reads sets of entry parts by kind.
func (r *jsonReader) parts() (table [schedule.NumKinds]uint64) {
	r.Object(func(name string) {
		kind, ok := schedule.ParseKind(name)
		if !ok {
			r.Unknown("a kind such as F or B")
			return
		}
		table[kind] |= r.set("an entry part")
	})
	return table
}

// set reads the members of a set.
func (r *jsonReader) set(what string) (set uint64) {
	for _, n := range r.numbers(what, 0, schedule.MaxParts-1) {
		set |= 1 << n
	}
	return set
}

// program reads the segments of a rank.
func (r *jsonReader) program() {
	r.f.starts = append(r.f.starts, uint32(r.Ahead()))
	r.f.offsets = append(r.f.offsets, nil)
	r.plan.Programs = append(r.plan.Programs, r.segments(true))
}

// segments reads a list of segments. If nesting is allowed, they may be nested loops.
func (r *jsonReader) segments(nesting bool) (program []schedule.Segment) {
	offsets := &r.f.offsets[len(r.f.offsets)-1]
	r.List(MaxBytes, func() {
		var segment schedule.Segment
		r.Object(func(name string) {
			switch {
			case name == "repeat":
				segment.Repeat = r.number("a repeat", 1, schedule.MaxMicrobatches)
			case name == "stride":
				segment.Stride = r.number("a stride", -schedule.MaxMicrobatches, schedule.MaxMicrobatches)
			case name == "actions" && segment.Inner == nil:
				segment.Body, *offsets = r.actions(*offsets)
			case name == "segments" && nesting && segment.Body == nil:
				start := r.Ahead()
				segment.Inner = r.segments(false)
				if r.nested += segment.Len(); r.nested > schedule.MaxNested {
					r.Wrong(start, fmt.Sprintf("found nested loops of %d actions a repeat, expected at most %d", r.nested, schedule.MaxNested))
				}
			default:
				r.Unknown("repeat, stride or actions, or segments in their place")
			}
		})
		if segment.Body == nil && segment.Inner == nil || segment.Repeat == 0 {
			r.missing("the repeat and the actions of the segment before it")
		}
		program = append(program, segment)
	})
	return program
}

// actions reads the actions of a body, and appends their offsets.
func (r *jsonReader) actions(offsets []uint32) ([]schedule.Action, []uint32) {
	text := r.Word()
	inside, start := r.Start()+1, r.Start()
	plain := strings.HasPrefix(r.f.text[min(inside, len(r.f.text)):], text) // the text contains no escapes
	body := make([]schedule.Action, 0, min(len(text)/4+1, schedule.MaxWritten))
	for word, offset := range words(text, " ") {
		place := start
		if plain {
			place = inside + offset
		}
		var a schedule.Action
		if err := a.UnmarshalText([]byte(word)); err != nil {
			placed, _ := errors.AsType[placedError](err) // UnmarshalText returns no other kind of error
			r.Wrong(place, placed.Fault())
			return nil, offsets
		}
		if r.f.written++; r.f.written > schedule.MaxWritten {
			r.Wrong(place, fmt.Sprintf("found action %d of the file, expected at most %d: write repeated actions as segments", r.f.written, schedule.MaxWritten))
			return nil, offsets
		}
		body, offsets = append(body, a), append(offsets, uint32(place))
	}
	if len(body) == 0 {
		r.Found(text, "expected actions such as 2F0 or 1B3~gs")
	}
	return body, offsets
}
