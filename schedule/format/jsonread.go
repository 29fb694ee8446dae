package format

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/schedule"
)

// readJSON reads Weir's JSON form.
func (f *File) readJSON(options Options) error {
	text := []byte(f.text)
	r := &jsonReader{in: jsonfile.NewDecoder(text), text: text, f: f, plan: &schedule.Plan{}, old: options.OldSchema}
	if r.file(); r.fault == nil {
		r.fault = jsonfile.End(r.in, text, content)
	}
	if r.fault != nil {
		return f.fault(r.fault.Offset, "%s", r.fault.Text)
	}
	f.Plan = r.plan
	return f.checkOptions(options)
}

// content names the text in errors.
const content = "the plan"

// jsonReader extracts a plan from a text. After the first fault, it takes no more tokens.
type jsonReader struct {
	in     *jsontext.Decoder
	text   []byte
	start  int    // offset of the last token
	field  string // the name of the last field
	fault  *jsonfile.Error
	f      *File
	plan   *schedule.Plan
	old    bool // the file may be of schema 1
	schema int
	pos    int // the offset after the last token of a list of actions
	frozen []int
	nested int64 // total number of actions in one repeat of each nested loop
}

// fail records a fault at the last token.
func (r *jsonReader) fail(format string, args ...any) {
	if r.fault == nil {
		r.fault = &jsonfile.Error{Offset: r.start, Text: fmt.Sprintf(format, args...)}
	}
}

// next goes to the next token and returns its kind, or 0 after a fault.
func (r *jsonReader) next() jsontext.Kind {
	if r.fault != nil {
		return 0
	}
	r.start = jsonfile.Next(r.in, r.text)
	return r.in.PeekKind()
}

// take takes the next token, and reports whether it is of one of the kinds. It returns the token's text, in quotes if
// it is a string but another kind is required.
func (r *jsonReader) take(kinds string) (text string, ok bool) {
	kind := r.next()
	if r.fault != nil {
		return "", false
	}
	token, err := r.in.ReadToken()
	if err != nil {
		r.fault = jsonfile.Explain(r.in, r.text, content, err)
		return "", false
	}
	text = token.String()
	if strings.IndexByte(kinds, byte(kind)) >= 0 {
		return text, true
	}
	if kind == '"' {
		text = jsonfile.Quote(text)
	}
	return text, false
}

// want takes the next token, which must be of one of the kinds, and returns its text.
func (r *jsonReader) want(kinds, expected string) (text string, ok bool) {
	if text, ok = r.take(kinds); !ok {
		r.fail("found %s, expected %s", text, expected)
	}
	return text, ok
}

// object takes an object, and calls value at the value of each of its fields.
func (r *jsonReader) object(value func(field string)) {
	if _, ok := r.want("{", "an object, {"); !ok {
		return
	}
	var names jsonfile.Names
	for r.next() == '"' {
		r.field, _ = r.take("\"")
		switch {
		case r.fault != nil:
		case !names.Add(r.field):
			r.fault = jsonfile.Repeated(r.start, r.field)
		default:
			value(r.field)
		}
	}
	r.want("}", "}")
}

// list takes a list of at most most values, and calls value at each of them.
func (r *jsonReader) list(most int, value func()) {
	if _, ok := r.want("[", "a list, ["); !ok {
		return
	}
	for n := 0; r.next() != ']' && r.fault == nil; n++ {
		if n == most {
			r.fail("found one more value, expected at most %d", most)
			return
		}
		value()
	}
	r.want("]", "]")
}

// number takes a whole number from low to high.
func (r *jsonReader) number(what string, low, high int) int {
	text, _ := r.take("0")
	return r.whole(text, what, low, high)
}

// whole converts a token to a whole number, and records a fault if it is not one from low to high.
func (r *jsonReader) whole(text, what string, low, high int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		r.fail("found %.45s, expected %s as a whole number from %d to %d", text, what, low, high)
	}
	return max(n, low)
}

func (r *jsonReader) numbers(what string, low, high int) []int {
	numbers := []int{}
	r.list(schedule.MaxStages, func() { numbers = append(numbers, r.number(what, low, high)) })
	return numbers
}

func (r *jsonReader) word() string {
	text, _ := r.want("\"", "a string")
	return text
}

func (r *jsonReader) flag() bool {
	text, _ := r.want("tf", "true or false")
	return text == "true"
}

// unknown reports that the last field is unknown.
func (r *jsonReader) unknown(expected string) {
	r.fail("found an unknown field %s, expected %s", jsonfile.Quote(r.field), expected)
}

// missing reports a fault at the end of the last object read.
func (r *jsonReader) missing(format string, args ...any) {
	r.fail("found \"}\", expected "+format, args...)
}

// file reads the whole object.
func (r *jsonReader) file() {
	var fields []string
	r.object(func(name string) {
		fields = append(fields, name)
		known := slices.IndexFunc(jsonFields, func(f jsonField) bool { return f.name == name })
		switch {
		case known >= 0:
			jsonFields[known].read(r)
		case name == "costs":
			r.costs()
		case name == "programs":
			r.list(schedule.MaxStages, r.program)
		default:
			var names strings.Builder
			for _, f := range jsonFields {
				names.WriteString(f.name + ", ")
			}
			r.unknown(names.String() + "costs or programs")
		}
	})
	for _, name := range [...]string{"schema", "name", "mode", "ranks", "placement", "microbatches", "programs"} {
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
}

// checkLengths checks that the placement and the lengths of the tables match the numbers of stages and ranks, so
// that the plan can be written. It also converts the list of frozen stages to Plan.Frozen.
func (r *jsonReader) checkLengths() {
	if r.fault != nil {
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
	for _, wrong := range p.LengthMismatches() {
		r.missing("%d %s before it, found %d", wrong.Want, cmp.Or(tableWords[wrong.Table], strings.ToLower(wrong.Table)), wrong.Len)
	}
}

// tableWords holds the file's words for tables of a plan that have another name in Go.
var tableWords = map[string]string{"OffloadSlots": "away", "StageInfo": "facts", "StageWindows": "windows", "SendWindows": "outgoing", "EntryWindows": "entries"}

// readSchema reads the schema. Other versions are refused, except for the old one if the options allow it.
func (r *jsonReader) readSchema() {
	switch r.schema = r.number("the schema", oldSchema, math.MaxInt32); {
	case r.schema > jsonSchema:
		r.fail("found schema %d, expected %d: %s", r.schema, jsonSchema, diagnostic.OtherVersion)
	case r.schema == oldSchema && !r.old:
		r.fail("found schema %d, expected %d: weir convert OLD --to plan -o NEW converts the file", oldSchema, jsonSchema)
	}
}

func (r *jsonReader) runtime() {
	word := r.word()
	runtime, known := schedule.ParseRuntime(word)
	if !known {
		r.fail("found %s, expected weir or pytorch", jsonfile.Quote(word))
	}
	r.plan.Runtime = runtime
}

func (r *jsonReader) mode() {
	word := r.word()
	mode, known := schedule.ParseMode(word)
	if !known {
		r.fail("found %s, expected %q or %q", jsonfile.Quote(word), schedule.Training, schedule.ForwardOnly)
	}
	r.plan.Mode = mode
}

// facts reads the facts of a stage.
func (r *jsonReader) facts() schedule.StageInfo {
	var f schedule.StageInfo
	r.object(func(name string) {
		switch name {
		case "frozen":
			f.Frozen = r.flag()
		case "split":
			f.Split = r.flag()
		case "recomputes":
			f.Recomputes = r.flag()
		case "quantizes":
			f.Quantizes = r.flag()
		case "reads":
			f.Reads = r.parts()
		default:
			r.unknown("frozen, split, recomputes, quantizes or reads")
		}
	})
	return f
}

// parts reads sets of entry parts by kind.
func (r *jsonReader) parts() (table [schedule.NumKinds]uint64) {
	r.object(func(name string) {
		kind, ok := schedule.ParseKind(name)
		if !ok {
			r.unknown("a kind such as F or B")
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
	r.next()
	r.f.starts = append(r.f.starts, uint32(r.start))
	r.f.offsets = append(r.f.offsets, nil)
	r.plan.Programs = append(r.plan.Programs, r.segments(true))
}

// segments reads a list of segments. If nesting is allowed, they may be nested loops.
func (r *jsonReader) segments(nesting bool) (program []schedule.Segment) {
	offsets := &r.f.offsets[len(r.f.offsets)-1]
	r.list(MaxBytes, func() {
		var segment schedule.Segment
		r.object(func(name string) {
			switch {
			case name == "repeat":
				segment.Repeat = r.number("a repeat", 1, schedule.MaxMicrobatches)
			case name == "stride":
				segment.Stride = r.number("a stride", -schedule.MaxMicrobatches, schedule.MaxMicrobatches)
			case name == "actions" && segment.Inner == nil:
				segment.Body, *offsets = r.actions(*offsets)
			case name == "segments" && nesting && segment.Body == nil:
				r.next()
				start := r.start
				segment.Inner = r.segments(false)
				if r.nested += segment.Len(); r.nested > schedule.MaxNested {
					r.start = start
					r.fail("found nested loops of %d actions a repeat, expected at most %d", r.nested, schedule.MaxNested)
				}
			default:
				r.unknown("repeat, stride or actions, or segments in their place")
			}
		})
		if segment.Body == nil && segment.Inner == nil || segment.Repeat == 0 {
			r.missing("the repeat and the actions of the segment before it")
		}
		program = append(program, segment)
	})
	return program
}
