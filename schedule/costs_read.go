package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// MaxCostsText is the most bytes that ReadCosts reads.
const MaxCostsText = 16 << 20

// ReadCosts reads what WriteCosts writes. All fields may be left out but schema and
// stages. It reads at most MaxCostsText bytes and allocates no more than a small
// multiple of what it has read.
//
// Errors wrap ErrCosts and say where the fault is, what was found there and what was
// expected. Where r has a Name, as a file does, the place is file:line:column.
func ReadCosts(r io.Reader) (*Costs, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxCostsText+1))
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	if len(text) > MaxCostsText {
		return nil, fmt.Errorf("%w: the text is longer than %d bytes", ErrCosts, MaxCostsText)
	}
	d := &costsReader{text: text, json: json.NewDecoder(bytes.NewReader(text))}
	if file, ok := r.(interface{ Name() string }); ok {
		d.name = file.Name()
	}
	d.json.UseNumber()
	c := d.costs()
	if d.fault != nil {
		return nil, d.fault
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// costsReader takes costs out of a text, token by token, so that an error can say
// where it is. Only the first fault is kept; after it there are no more tokens.
type costsReader struct {
	name  string // of the file, or ""
	text  []byte
	json  *json.Decoder
	start int64 // of the token that was taken last
	fault error
}

func (d *costsReader) costs() *Costs {
	c := &Costs{}
	schema := false
	d.object(func(field string) {
		switch field {
		case "schema":
			schema = true
			if d.whole("the schema", costsSchema, costsSchema) != costsSchema {
				return
			}
		case "unit":
			c.Unit = d.word()
		case "scale":
			c.Scale = d.amount(field)
		case "latency":
			c.Latency = d.amount(field)
		case "per_mib":
			c.PerMiB = d.amount(field)
		case "links":
			d.list(func() { c.Links = append(c.Links, d.link()) })
		case "resident":
			d.list(func() { c.Resident = append(c.Resident, d.amount("the bytes of a rank")) })
		case "stages":
			d.list(func() { c.Stages = append(c.Stages, d.stage()) })
		default:
			d.unknown("schema, unit, scale, latency, per_mib, links, resident or stages")
		}
	})
	if d.fault != nil {
		return nil
	}
	if rest := bytes.TrimLeft(d.text[d.json.InputOffset():], " \t\r\n"); len(rest) > 0 {
		d.start = int64(len(d.text) - len(rest))
		d.fail("something behind the costs", "expected the end of the text")
	}
	if !schema {
		d.start = 0
		d.fail("no schema", "expected \"schema\": %d in the costs", costsSchema)
	}
	return c
}

func (d *costsReader) link() LinkCosts {
	var l LinkCosts
	d.object(func(field string) {
		switch field {
		case "from":
			l.From = int(d.whole("a rank", 0, MaxStages-1))
		case "to":
			l.To = int(d.whole("a rank", 0, MaxStages-1))
		case "latency":
			l.Latency = d.amount(field)
		case "per_mib":
			l.PerMiB = d.amount(field)
		default:
			d.unknown("from, to, latency or per_mib")
		}
	})
	return l
}

func (d *costsReader) stage() StageCosts {
	var s StageCosts
	d.object(func(field string) {
		if v := s.field(field); v != nil {
			*v = d.amount(field)
		} else {
			d.unknown("f, i, w, b, joined, recompute, output, gradient, saved, freed_by_i or carry")
		}
	})
	return s
}

// token takes the next token; nil after a fault.
func (d *costsReader) token() json.Token {
	if d.fault != nil {
		return nil
	}
	end := d.json.InputOffset()
	t, err := d.json.Token()
	for int(end) < len(d.text) && (isSpace(d.text[end]) || d.text[end] == ',' || d.text[end] == ':') {
		end++
	}
	d.start = end
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		d.start = max(d.start, syntax.Offset-1)
		d.fail("", "%s", syntax)
	} else if err != nil {
		d.start = int64(len(d.text))
		d.fail("the end of the text", "expected more of the costs")
	}
	return t
}

// object takes an object, and calls value where the value of a field stands.
func (d *costsReader) object(value func(field string)) {
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
		for _, s := range seen {
			if s == field {
				d.found(t, "which is there already: give it once")
				return
			}
		}
		seen = append(seen, field)
		value(field)
	}
}

// list takes a list of at most MaxStages values, and calls value where each stands.
func (d *costsReader) list(value func()) {
	if t := d.token(); t != json.Delim('[') {
		d.found(t, "expected a list, [")
		return
	}
	for n := 0; d.fault == nil && d.json.More(); n++ {
		if n == MaxStages {
			d.token()
			d.fail("one more value", "expected at most %d", MaxStages)
			return
		}
		value()
	}
	d.token()
}

// amount takes a time or a size.
func (d *costsReader) amount(what string) int64 { return d.whole(what, 0, maxCost) }

// whole takes a whole number from low to high.
func (d *costsReader) whole(what string, low, high int64) int64 {
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
func (d *costsReader) word() string {
	t := d.token()
	word, ok := t.(string)
	if !ok {
		d.found(t, "expected a string")
	}
	return word
}

// unknown is the fault of a field that was just taken.
func (d *costsReader) unknown(expected string) { d.fail("an unknown field", "expected %s", expected) }

// found is the fault of a token that was just taken.
func (d *costsReader) found(t json.Token, format string, args ...any) {
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

// fail notes a fault at the last token.
func (d *costsReader) fail(found, format string, args ...any) {
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
	d.fault = &costsFault{line: line, column: column, place: place, text: found + fmt.Sprintf(format, args...)}
}

// costsFault is a fault at a place of a text.
type costsFault struct {
	line, column int
	place        string // the same, in words
	text         string
}

func (f *costsFault) Error() string { return fmt.Sprintf("%v: %s: %s", ErrCosts, f.place, f.text) }

func (f *costsFault) Unwrap() error { return ErrCosts }

// Place returns where the fault is, for those who read costs out of a larger text.
func (f *costsFault) Place() (line, column int) { return f.line, f.column }

// Fault returns what was found and what was expected.
func (f *costsFault) Fault() string { return f.text }
