package format

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// readJSON reads our own JSON.
func (f *File) readJSON(options Options) error {
	r := &jsonReader{f: f, decoder: json.NewDecoder(strings.NewReader(f.text)), plan: &schedule.Plan{}}
	r.decoder.UseNumber()
	r.file()
	if r.err != nil {
		return r.err
	}
	f.Plan = r.plan
	return f.agree(options)
}

// jsonReader takes a JSON text apart, token by token. After the first fault, which
// it keeps, it reads nothing more.
type jsonReader struct {
	f       *File
	decoder *json.Decoder
	plan    *schedule.Plan
	frozen  []int
	err     error

	start int        // of the current token
	token json.Token // nil at the end
}

// fail keeps a fault of the current token.
func (r *jsonReader) fail(format string, args ...any) {
	if r.err == nil {
		found := quote(r.f.text[r.start:r.decoder.InputOffset()])
		r.err = r.f.fault(r.start, "found %s, "+format, append([]any{found}, args...)...)
	}
}

// ahead returns where the next token is.
func (r *jsonReader) ahead() int {
	offset := int(r.decoder.InputOffset())
	for offset < len(r.f.text) && strings.IndexByte(" \t\r\n,:", r.f.text[offset]) >= 0 {
		offset++
	}
	return offset
}

// next goes on to the next token.
func (r *jsonReader) next() {
	if r.err != nil {
		return
	}
	r.start = r.ahead()
	var err error
	r.token, err = r.decoder.Token()
	if err == nil {
		return
	}
	offset := r.start
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		offset = max(offset, min(int(syntax.Offset)-1, len(r.f.text)))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		offset = len(r.f.text)
	}
	r.err = r.f.fault(offset, "found %s, expected JSON", r.f.found(offset))
}

// delimiter takes a token that must be this bracket.
func (r *jsonReader) delimiter(bracket json.Delim) {
	if r.next(); r.err == nil && r.token != bracket {
		r.fail("expected %v", bracket)
	}
}

// object reads an object. field reads the value of a field, and reports false for
// one that it does not know.
func (r *jsonReader) object(names string, field func(name string) bool) {
	r.delimiter('{')
	var seen []string
	for r.err == nil && r.decoder.More() {
		r.next()
		name, _ := r.token.(string)
		switch {
		case r.err != nil:
		case slices.Contains(seen, name):
			r.fail("expected each field once")
		case !field(name):
			r.fail("expected a field out of %s", names)
		}
		seen = append(seen, name)
	}
	r.delimiter('}')
}

// array reads an array of at most so many elements.
func (r *jsonReader) array(limit int, element func()) {
	r.delimiter('[')
	for n := 0; r.err == nil && r.decoder.More(); n++ {
		if n == limit {
			r.next()
			r.fail("expected at most %d elements", limit)
			return
		}
		element()
	}
	r.delimiter(']')
}

// text takes a string.
func (r *jsonReader) text(what string) string {
	r.next()
	s, ok := r.token.(string)
	if !ok {
		r.fail("expected %s in quotes", what)
	}
	return s
}

// number takes a whole number from low to high.
func (r *jsonReader) number(what string, low, high int) int {
	r.next()
	digits, _ := r.token.(json.Number)
	n, err := strconv.Atoi(digits.String())
	if err != nil || n < low || n > high {
		r.fail("expected %s from %d to %d", what, low, high)
	}
	return n
}

func (r *jsonReader) numbers(what string, low, high int) []int {
	numbers := []int{}
	r.array(schedule.MaxStages, func() { numbers = append(numbers, r.number(what, low, high)) })
	return numbers
}

func (r *jsonReader) boolean() bool {
	r.next()
	b, ok := r.token.(bool)
	if !ok {
		r.fail("expected true or false")
	}
	return b
}

// file reads the whole of it.
func (r *jsonReader) file() {
	const names = "schema, name, mode, ranks, placement, copies, microbatches, slices, frozen, facts, parts, windows, outgoing, entries, costs, programs"
	p := r.plan
	var fields []string
	r.object(names, func(name string) bool {
		fields = append(fields, name)
		switch name {
		case "schema":
			r.number("the schema", jsonSchema, jsonSchema)
		case "name":
			p.Name = r.text("the plan's name")
		case "mode":
			p.Mode = r.mode()
		case "ranks":
			p.Placement.Ranks = r.number("a number of ranks", 1, schedule.MaxStages)
		case "placement":
			p.Placement.Rank = r.numbers("the rank of each stage,", 0, schedule.MaxStages-1)
		case "copies":
			p.Placement.Copies = r.number("a number of copies", 2, schedule.MaxStages)
		case "microbatches":
			p.Microbatches = r.number("a number of microbatches", 1, schedule.MaxMicrobatches)
		case "slices":
			p.Slices = r.number("a number of slices", 2, schedule.MaxMicrobatches)
		case "frozen":
			r.frozen = r.numbers("a stage", 0, schedule.MaxStages-1)
		case "facts":
			p.Facts = []schedule.Facts{}
			r.array(schedule.MaxStages, func() { p.Facts = append(p.Facts, r.facts()) })
		case "parts":
			p.Parts = [][schedule.NumKinds]uint64{}
			r.array(schedule.MaxStages, func() { p.Parts = append(p.Parts, r.parts()) })
		case "windows":
			p.Windows = r.numbers("a window", 0, schedule.MaxMicrobatches)
		case "outgoing":
			p.Outgoing = r.numbers("a window", 0, schedule.MaxMicrobatches)
		case "entries":
			p.Entries = r.numbers("a window", 0, schedule.MaxMicrobatches)
		case "costs":
			r.costs()
		case "programs":
			r.array(schedule.MaxStages, r.program)
		default:
			return false
		}
		return true
	})
	for _, name := range [...]string{"schema", "name", "mode", "ranks", "placement", "microbatches", "programs"} {
		if !slices.Contains(fields, name) {
			r.fail("expected the field %s before it", name)
		}
	}
	r.fits()
	if r.err == nil {
		if strings.TrimSpace(r.f.text[r.decoder.InputOffset():]) != "" {
			r.next()
			r.fail("expected the end of the file")
		}
	}
}

// fits looks at whether the tables are of as many stages and ranks as there are, so
// that what was read can be written.
func (r *jsonReader) fits() {
	if r.err != nil {
		return
	}
	p := r.plan
	stages, ranks := p.Placement.Stages(), p.Placement.Ranks
	if stages < 1 || stages > schedule.MaxStages {
		r.fail("expected a placement of 1 to %d stages before it", schedule.MaxStages)
	}
	if highest := slices.Max(append(p.Placement.Rank, 0)); highest >= ranks {
		r.fail("expected a placement on ranks 0 to %d before it", ranks-1)
	}
	if p.Placement.Copies > 0 && stages%p.Placement.Copies != 0 {
		r.fail("expected copies that divide the %d stages before it", stages)
	}
	for i, stage := range r.frozen {
		if stage >= stages || i > 0 && stage <= r.frozen[i-1] {
			r.fail("expected frozen stages, ascending, from 0 to %d before it", stages-1)
			return
		}
		if p.Frozen == nil {
			p.Frozen = make([]bool, stages)
		}
		p.Frozen[stage] = true
	}
	for _, table := range [...]struct {
		name      string
		has       bool
		got, want int
	}{
		{"programs", true, len(p.Programs), ranks},
		{"facts", p.Facts != nil, len(p.Facts), stages},
		{"parts", p.Parts != nil, len(p.Parts), stages},
		{"windows", p.Windows != nil, len(p.Windows), stages},
		{"outgoing", p.Outgoing != nil, len(p.Outgoing), stages},
		{"entries", p.Entries != nil, len(p.Entries), ranks},
	} {
		if table.has && table.got != table.want {
			r.fail("expected %d %s before it, where there are %d", table.want, table.name, table.got)
		}
	}
}

func (r *jsonReader) mode() schedule.Mode {
	switch r.text("the mode") {
	case schedule.Training.String():
	case schedule.ForwardOnly.String():
		return schedule.ForwardOnly
	default:
		r.fail("expected %q or %q", schedule.Training, schedule.ForwardOnly)
	}
	return schedule.Training
}

// facts reads the facts of a stage.
func (r *jsonReader) facts() schedule.Facts {
	var f schedule.Facts
	r.object("frozen, split, recomputes, quantizes, reads", func(name string) bool {
		switch name {
		case "frozen":
			f.Frozen = r.boolean()
		case "split":
			f.Split = r.boolean()
		case "recomputes":
			f.Recomputes = r.boolean()
		case "quantizes":
			f.Quantizes = r.boolean()
		case "reads":
			f.Reads = r.parts()
		default:
			return false
		}
		return true
	})
	return f
}

// parts reads sets of entry parts by kind.
func (r *jsonReader) parts() (table [schedule.NumKinds]uint64) {
	r.object("kinds such as F or B", func(name string) bool {
		kind, ok := schedule.ParseKind(name)
		if !ok {
			return false
		}
		for _, part := range r.numbers("an entry part", 0, schedule.MaxParts-1) {
			table[kind] |= 1 << part
		}
		return true
	})
	return table
}

// program reads the segments of a rank.
func (r *jsonReader) program() {
	r.f.starts = append(r.f.starts, uint32(r.ahead()))
	var program []schedule.Segment
	var offsets []uint32
	r.array(MaxBytes, func() {
		var segment schedule.Segment
		r.object("repeat, stride, actions", func(name string) bool {
			switch name {
			case "repeat":
				segment.Repeat = r.number("a repeat", 1, schedule.MaxMicrobatches)
			case "stride":
				segment.Stride = r.number("a stride", -schedule.MaxMicrobatches, schedule.MaxMicrobatches)
			case "actions":
				segment.Body, offsets = r.actions(offsets)
			default:
				return false
			}
			return true
		})
		if segment.Body == nil || segment.Repeat == 0 {
			r.fail("expected the repeat and the actions of the segment before it")
		}
		program = append(program, segment)
	})
	r.plan.Programs = append(r.plan.Programs, program)
	r.f.offsets = append(r.f.offsets, offsets)
}

// actions reads the actions of a body, and appends their places.
func (r *jsonReader) actions(offsets []uint32) ([]schedule.Action, []uint32) {
	text := r.text("actions")
	inside := r.start + 1
	plain := strings.HasPrefix(r.f.text[min(inside, len(r.f.text)):], text) // without escapes
	body := make([]schedule.Action, 0, len(text)/4+1)
	for word, offset := range words(text, " ") {
		var a schedule.Action
		if err := a.UnmarshalText([]byte(word)); err != nil {
			if plain {
				r.start = inside + offset
			}
			r.err = r.f.fault(r.start, "%s", faultOf(err))
			return nil, offsets
		}
		if plain {
			offsets = append(offsets, uint32(inside+offset))
		} else {
			offsets = append(offsets, uint32(r.start))
		}
		body = append(body, a)
	}
	if len(body) == 0 {
		r.fail("expected actions such as 2F0 or 1B3~gs")
	}
	return body, offsets
}

// faultOf is what an error of package schedule says of a place, without the place.
func faultOf(err error) string {
	var fault interface{ Fault() string }
	if errors.As(err, &fault) {
		return fault.Fault()
	}
	return err.Error()
}
