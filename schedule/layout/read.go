package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

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
// than a multiple of what it has read. Errors wrap ErrTemplates and say where the fault
// is, what was found there and what was expected. Where r has a Name, as a file does,
// the place is file:line:column.
func Read(r io.Reader) (*Templates, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	if len(text) > MaxText {
		return nil, fmt.Errorf("%w: the text is longer than %d bytes", ErrTemplates, MaxText)
	}
	d := &reader{text: text, json: json.NewDecoder(bytes.NewReader(text))}
	if file, ok := r.(interface{ Name() string }); ok {
		d.name = file.Name()
	}
	d.json.UseNumber()
	t := d.templates()
	if d.fault != nil {
		return nil, d.fault
	}
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return t, nil
}

// reader takes templates out of a text, token by token, so that an error can say where
// it is. Only the first fault is kept; after it there are no more tokens.
type reader struct {
	name  string // of the file, or ""
	text  []byte
	json  *json.Decoder
	start int64 // of the token that was taken last
	fault error
}

func (d *reader) templates() *Templates {
	t := &Templates{}
	versioned := false
	d.object(func(field string) {
		switch field {
		case "schema":
			versioned = true
			d.whole("the schema", schema, schema)
		case "parts":
			d.list(64, func() { t.Parts = append(t.Parts, d.word()) })
		case "facts":
			d.list(schedule.MaxStages, func() { t.Facts = append(t.Facts, d.facts()) })
		case "params":
			d.list(schedule.MaxStages, func() {
				params := []Param{}
				d.list(maxList, func() { params = append(params, d.param()) })
				t.Params = append(t.Params, params)
			})
		case "shapes":
			d.list(maxList, func() { t.Shapes = append(t.Shapes, d.shape()) })
		default:
			d.unknown("schema, parts, facts, params or shapes")
		}
	})
	if d.fault != nil {
		return nil
	}
	if rest := bytes.TrimLeft(d.text[d.json.InputOffset():], " \t\r\n"); len(rest) > 0 {
		d.start = int64(len(d.text) - len(rest))
		d.fail("something behind the templates", "expected the end of the text")
	}
	if !versioned {
		d.start = 0
		d.fail("no schema", "expected \"schema\": %d in the templates", schema)
	}
	return t
}

func (d *reader) facts() (f schedule.Facts) {
	d.object(func(field string) {
		switch field {
		case "frozen":
			f.Frozen = d.flag()
		case "split":
			f.Split = d.flag()
		case "recomputes":
			f.Recomputes = d.flag()
		case "reads":
			d.object(func(kind string) {
				for k := range f.Reads {
					if schedule.Kind(k).Compute() && schedule.Kind(k).String() == kind {
						f.Reads[k] = d.set()
						return
					}
				}
				d.unknown("F, B, I or W")
			})
		default:
			d.unknown("frozen, split, recomputes or reads")
		}
	})
	return f
}

// set takes a list of numbers of parts.
func (d *reader) set() (set uint64) {
	d.list(64, func() { set |= 1 << d.whole("an entry part", 0, 63) })
	return set
}

func (d *reader) param() (p Param) {
	d.object(func(field string) {
		switch field {
		case "name":
			p.Name = d.word()
		case "bytes":
			p.Bytes = d.whole("bytes", 0, maxBytes)
		case "frozen":
			p.Frozen = d.flag()
		default:
			d.unknown("name, bytes or frozen")
		}
	})
	return p
}

func (d *reader) shape() (s Shape) {
	d.object(func(field string) {
		switch field {
		case "name":
			s.Name = d.word()
		case "entries":
			d.list(maxList, func() { s.Entries = append(s.Entries, d.entry()) })
		case "stages":
			d.list(schedule.MaxStages, func() { s.Stages = append(s.Stages, d.template()) })
		default:
			d.unknown("name, entries or stages")
		}
	})
	return s
}

func (d *reader) entry() (e Entry) {
	d.object(func(field string) {
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
			d.unknown("parts, buffers, events or out")
		}
	})
	return e
}

func (d *reader) template() (t Template) {
	d.object(func(field string) {
		switch field {
		case "stage":
			t.Stage = d.word()
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
		default:
			d.unknown("stage, buffers, " + strings.Join(callNames[:], ", "))
		}
	})
	return t
}

func (d *reader) call() *Call {
	c := &Call{}
	d.object(func(field string) {
		switch field {
		case "events":
			c.Events = d.events()
		case "taken":
			c.Taken = int(d.whole("a number of events", 0, maxList))
		case "out":
			c.Out = d.refs()
		default:
			d.unknown("events, taken or out")
		}
	})
	return c
}

func (d *reader) buffers() (list []Buffer) {
	d.list(maxList, func() {
		var b Buffer
		d.object(func(field string) {
			switch field {
			case "name":
				b.Name = d.word()
			case "bytes":
				b.Bytes = d.whole("bytes", 1, maxBytes)
			case "class":
				word := d.word()
				var ok bool
				if b.Class, ok = memory.ParseClass(word); !ok {
					d.found(word, "expected a class of memory, such as saved or workspace")
				}
			case "at_most":
				b.AtMost = d.flag()
			default:
				d.unknown("name, bytes, class or at_most")
			}
		})
		list = append(list, b)
	})
	return list
}

func (d *reader) events() (list []Event) {
	d.list(maxList, func() {
		word := d.word()
		var e Event
		ok := false
		if word != "" {
			op := strings.IndexByte(opLetters, word[0])
			e.Op = Op(max(op, 0))
			e.Ref, ok = parseRef(word[1:])
			ok = ok && op >= 0 && e.Ref.Kind != None
		}
		if !ok {
			d.found(word, "expected an event: a, + or -, and a buffer, such as a0, +i0 or -3")
		}
		list = append(list, e)
	})
	return list
}

func (d *reader) refs() (list []Ref) {
	d.list(maxList, func() {
		word := d.word()
		ref, ok := parseRef(word)
		if !ok {
			d.found(word, "expected a buffer, such as 0, i0, g0 or p0, or nothing")
		}
		list = append(list, ref)
	})
	return list
}

// token takes the next token; nil after a fault.
func (d *reader) token() json.Token {
	if d.fault != nil {
		return nil
	}
	end := d.json.InputOffset()
	t, err := d.json.Token()
	for int(end) < len(d.text) && strings.IndexByte(" \t\r\n,:", d.text[end]) >= 0 {
		end++
	}
	d.start = end
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		d.start = max(d.start, syntax.Offset-1)
		d.fail("", "%s", syntax)
	} else if err != nil {
		d.start = int64(len(d.text))
		d.fail("the end of the text", "expected more of the templates")
	}
	return t
}

// object takes an object, and calls value where the value of a field stands.
func (d *reader) object(value func(field string)) {
	if t := d.token(); t != json.Delim('{') {
		d.found(t, "expected an object, {")
		return
	}
	var seen []string
	for d.fault == nil {
		t := d.token()
		field, ok := t.(string)
		if !ok {
			return // the end: the decoder sees to it that fields have names
		}
		if slices.Contains(seen, field) {
			d.found(t, "which is there already: give it once")
			return
		}
		seen = append(seen, field)
		value(field)
	}
}

// list takes a list of at most so many values, and calls value where each stands.
func (d *reader) list(most int, value func()) {
	if t := d.token(); t != json.Delim('[') {
		d.found(t, "expected a list, [")
		return
	}
	for n := 0; d.fault == nil && d.json.More(); n++ {
		if n == most {
			d.token()
			d.fail("one more value", "expected at most %d", most)
			return
		}
		value()
	}
	d.token()
}

// whole takes a whole number from low to high.
func (d *reader) whole(what string, low, high int64) int64 {
	t := d.token()
	number, ok := t.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if !ok || err != nil || n < low || n > high {
		d.found(t, "expected %s as a whole number from %d to %d", what, low, high)
		return low
	}
	return n
}

// word takes a string.
func (d *reader) word() string {
	t := d.token()
	word, ok := t.(string)
	if !ok {
		d.found(t, "expected a string")
	}
	return word
}

// flag takes true or false.
func (d *reader) flag() bool {
	t := d.token()
	flag, ok := t.(bool)
	if !ok {
		d.found(t, "expected true or false")
	}
	return flag
}

// unknown is the fault of a field that was just taken.
func (d *reader) unknown(expected string) { d.fail("an unknown field", "expected %s", expected) }

// found is the fault of a token that was just taken.
func (d *reader) found(t json.Token, format string, args ...any) {
	what := "null"
	switch t := t.(type) {
	case json.Delim:
		what = t.String()
	case json.Number:
		what = shorten(t.String())
	case string:
		what = strconv.Quote(shorten(t))
	case bool:
		what = strconv.FormatBool(t)
	}
	d.fail(what, format, args...)
}

// shorten returns the beginning of what may be long.
func shorten(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// fail notes a fault at the last token.
func (d *reader) fail(found, format string, args ...any) {
	if d.fault != nil {
		return
	}
	before := d.text[:min(int(d.start), len(d.text))]
	line, column := 1+bytes.Count(before, []byte{'\n'}), len(before)-bytes.LastIndexByte(before, '\n')
	place := fmt.Sprintf("line %d:%d", line, column)
	if d.name != "" {
		place = fmt.Sprintf("%s:%d:%d", d.name, line, column)
	}
	if found != "" {
		found = "found " + found + ", "
	}
	d.fault = fmt.Errorf("%w: %s: %s%s", ErrTemplates, place, found, fmt.Sprintf(format, args...))
}
