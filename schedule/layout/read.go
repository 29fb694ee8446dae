package layout

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weir-ml/weir/internal/jsontext"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

const (
	// MaxText is the most bytes that Read reads.
	MaxText = 64 << 20
	// maxList is how long a list may be.
	maxList = 1 << 20
)

// Read reads what Write writes. It reads at most MaxText bytes and allocates no more
// than a multiple of what it has read. Errors wrap ErrProfile and say where the fault
// is, what was found there and what was expected. Where r has a Name, as a file does,
// the place is file:line:column.
func Read(r io.Reader) (*Profile, error) {
	text, err := jsontext.New(r, MaxText, "the profile")
	if errors.Is(err, jsontext.ErrLong) {
		return nil, fmt.Errorf("%w: the text is longer than %d bytes", ErrProfile, MaxText)
	}
	if err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	d := reader{text}
	t := d.profile()
	if f := d.Fault(); f != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrProfile, f.Place, f.Text)
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// reader takes a profile out of a text.
type reader struct{ *jsontext.Reader }

func (d reader) profile() *Profile {
	t := &Profile{}
	versioned := false
	d.Object(func(field string) {
		switch field {
		case "schema":
			versioned = true
			d.Whole("the schema", schema, schema)
		case "parts":
			d.List(64, func() { t.Parts = append(t.Parts, d.Word()) })
		case "facts":
			d.List(schedule.MaxStages, func() { t.Facts = append(t.Facts, d.facts()) })
		case "params":
			d.List(schedule.MaxStages, func() {
				params := []Param{}
				d.List(maxList, func() { params = append(params, d.param()) })
				t.Params = append(t.Params, params)
			})
		case "shapes":
			d.List(maxList, func() { t.Shapes = append(t.Shapes, d.shape()) })
		default:
			d.Unknown("schema, parts, facts, params or shapes")
		}
	})
	d.End(schema, versioned)
	return t
}

func (d reader) facts() (f schedule.Facts) {
	d.Object(func(field string) {
		switch field {
		case "frozen":
			f.Frozen = d.Flag()
		case "split":
			f.Split = d.Flag()
		case "recomputes":
			f.Recomputes = d.Flag()
		case "quantizes":
			f.Quantizes = d.Flag()
		case "reads":
			d.Object(func(kind string) {
				for k := range f.Reads {
					if schedule.Kind(k).Compute() && schedule.Kind(k).String() == kind {
						f.Reads[k] = d.set()
						return
					}
				}
				d.Unknown("F, B, I or W")
			})
		default:
			d.Unknown("frozen, split, recomputes, quantizes or reads")
		}
	})
	return f
}

// set takes a list of numbers of parts.
func (d reader) set() (set uint64) {
	d.List(64, func() { set |= 1 << d.Whole("an entry part", 0, 63) })
	return set
}

func (d reader) param() (p Param) {
	d.Object(func(field string) {
		switch field {
		case "name":
			p.Name = d.Word()
		case "bytes":
			p.Bytes = d.Whole("bytes", 0, maxBytes)
		case "frozen":
			p.Frozen = d.Flag()
		default:
			d.Unknown("name, bytes or frozen")
		}
	})
	return p
}

func (d reader) shape() (s Shape) {
	d.Object(func(field string) {
		switch field {
		case "name":
			s.Name = d.Word()
		case "entries":
			d.List(maxList, func() { s.Entries = append(s.Entries, d.entry()) })
		case "stages":
			d.List(schedule.MaxStages, func() { s.Stages = append(s.Stages, d.stageProfile()) })
		default:
			d.Unknown("name, entries or stages")
		}
	})
	return s
}

func (d reader) entry() (e Entry) {
	d.Object(func(field string) {
		switch field {
		case "parts":
			e.Parts = d.set()
		case "buffers":
			e.Buffers = d.buffers()
		case "events":
			e.Events = d.events()
		case "out":
			e.Out = d.refs()
		default:
			d.Unknown("parts, buffers, events or out")
		}
	})
	return e
}

func (d reader) stageProfile() (t StageProfile) {
	d.Object(func(field string) {
		switch field {
		case "stage":
			t.Stage = d.Word()
		case "buffers":
			t.Buffers = d.buffers()
		case "forward":
			t.Forward = d.call()
		case "whole":
			t.Whole = d.call()
		case "input":
			t.Input = d.call()
		case "weight":
			t.Weight = d.call()
		case "eval":
			t.Eval = d.call()
		case "gather":
			t.Gather = d.call()
		case "reduce":
			t.Reduce = d.call()
		case "quantize":
			t.Quantize = d.call()
		case "quantize_eval":
			t.QuantizeEval = d.call()
		default:
			d.Unknown("stage, buffers, " + strings.Join(callNames[:], ", "))
		}
	})
	return t
}

func (d reader) call() *Call {
	c := &Call{}
	d.Object(func(field string) {
		switch field {
		case "events":
			c.Events = d.events()
		case "taken":
			c.Taken = int(d.Whole("a number of events", 0, maxList))
		case "out":
			c.Out = d.refs()
		case "forward":
			c.Forward = int(d.Whole("a number of copies", 0, maxList))
		default:
			d.Unknown("events, taken, out or forward")
		}
	})
	return c
}

func (d reader) buffers() (list []Buffer) {
	d.List(maxList, func() {
		var b Buffer
		d.Object(func(field string) {
			switch field {
			case "name":
				b.Name = d.Word()
			case "bytes":
				b.Bytes = d.Whole("bytes", 1, maxBytes)
			case "class":
				word := d.Word()
				var ok bool
				if b.Class, ok = memory.ParseClass(word); !ok {
					d.Found(word, "expected a class of memory, such as saved or workspace")
				}
			case "at_most":
				b.AtMost = d.Flag()
			default:
				d.Unknown("name, bytes, class or at_most")
			}
		})
		list = append(list, b)
	})
	return list
}

func (d reader) events() (list []Event) {
	d.List(maxList, func() {
		word := d.Word()
		var e Event
		ok := false
		if word != "" {
			op := strings.IndexByte(opLetters, word[0])
			e.Op = Op(max(op, 0))
			e.Ref, ok = parseRef(word[1:])
			ok = ok && op >= 0 && e.Ref.Kind != None
		}
		if !ok {
			d.Found(word, "expected an event: a, + or -, and a buffer, such as a0, +i0 or -3")
		}
		list = append(list, e)
	})
	return list
}

func (d reader) refs() (list []Ref) {
	d.List(maxList, func() {
		word := d.Word()
		ref, ok := parseRef(word)
		if !ok {
			d.Found(word, "expected a buffer, such as 0, i0, g0 or p0, or nothing")
		}
		list = append(list, ref)
	})
	return list
}
