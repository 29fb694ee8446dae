package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ErrLong is returned for a text that is longer than it may be.
var ErrLong = errors.New("jsontext: the text is too long")

// Reader takes a text apart. It is for one goroutine.
type Reader struct {
	name  string // of the file, or ""
	what  string // the text is of, in faults
	text  []byte
	json  *json.Decoder
	start int64  // of the token that was taken last
	field string // that was taken last
	fault *Fault
}

// Fault is what is wrong at a place of a text.
type Fault struct {
	Line, Column int
	Place        string // the same in words: file:line:column, or line and column of a text without a name
	Text         string // what was found and what was expected
}

// New reads a whole text of at most so many bytes; a longer one is ErrLong. What names
// its content in faults, such as "the costs". Where r has a Name, as a file does, it is
// part of a fault's place.
func New(r io.Reader, most int64, what string) (*Reader, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, ErrLong
	}
	d := &Reader{text: text, json: json.NewDecoder(bytes.NewReader(text)), what: what}
	if file, ok := r.(interface{ Name() string }); ok {
		d.name = file.Name()
	}
	d.json.UseNumber()
	return d, nil
}

// Fault returns the first fault, nil where there is none.
func (d *Reader) Fault() *Fault { return d.fault }

// End demands that nothing is behind what was read, and that its schema was given.
func (d *Reader) End(schema int, given bool) {
	if d.fault != nil {
		return
	}
	if rest := bytes.TrimLeft(d.text[d.json.InputOffset():], " \t\r\n"); len(rest) > 0 {
		d.start = int64(len(d.text) - len(rest))
		d.fail("something behind "+d.what, "expected the end of the text")
	}
	if !given {
		d.start = 0
		d.fail("no schema", "expected \"schema\": %d in %s", schema, d.what)
	}
}

// token takes the next token; nil after a fault.
func (d *Reader) token() json.Token {
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
		d.fail("the end of the text", "expected more of %s", d.what)
	}
	return t
}

// Object takes an object, and calls value where the value of a field stands.
func (d *Reader) Object(value func(field string)) {
	if t := d.token(); t != json.Delim('{') {
		d.Found(t, "expected an object, {")
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
			d.Found(t, "which is there already: give it once")
			return
		}
		seen = append(seen, field)
		d.field = field
		value(field)
	}
}

// List takes a list of at most so many values, and calls value where each stands.
func (d *Reader) List(most int, value func()) {
	if t := d.token(); t != json.Delim('[') {
		d.Found(t, "expected a list, [")
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

// Whole takes a whole number from low to high.
func (d *Reader) Whole(what string, low, high int64) int64 {
	t := d.token()
	number, ok := t.(json.Number)
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if !ok || err != nil || n < low || n > high {
		d.Found(t, "expected %s as a whole number from %d to %d", what, low, high)
		return low
	}
	return n
}

// Word takes a string.
func (d *Reader) Word() string {
	t := d.token()
	word, ok := t.(string)
	if !ok {
		d.Found(t, "expected a string")
	}
	return word
}

// Flag takes true or false.
func (d *Reader) Flag() bool {
	t := d.token()
	flag, ok := t.(bool)
	if !ok {
		d.Found(t, "expected true or false")
	}
	return flag
}

// Unknown is the fault of a field that was just taken.
func (d *Reader) Unknown(expected string) {
	d.fail("an unknown field "+strconv.Quote(shorten(d.field)), "expected %s", expected)
}

// Found is the fault of a token that was just taken.
func (d *Reader) Found(t json.Token, format string, args ...any) {
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
func (d *Reader) fail(found, format string, args ...any) {
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
	d.fault = &Fault{Line: line, Column: column, Place: place, Text: found + fmt.Sprintf(format, args...)}
}
