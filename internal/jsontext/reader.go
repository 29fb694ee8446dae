package jsontext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// ErrLong is returned for a text that is longer than it may be.
var ErrLong = errors.New("jsontext: the text is too long")

// Reader takes a text apart. It is for one goroutine.
type Reader struct {
	name  string // of the file, or ""
	what  string // the text is of, in faults
	text  []byte
	at    int    // the first byte that was not taken
	start int    // of the token that was taken last
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
	d := &Reader{text: text, what: what}
	if file, ok := r.(interface{ Name() string }); ok {
		d.name = file.Name()
	}
	return d, nil
}

// Fault returns the first fault, nil where there is none.
func (d *Reader) Fault() *Fault { return d.fault }

// End demands that nothing is behind what was read, and that its schema was given.
func (d *Reader) End(schema int, given bool) {
	if d.fault != nil {
		return
	}
	if d.skip(); d.at < len(d.text) {
		d.fail("something behind "+d.what, "expected the end of the text")
	}
	if !given {
		d.start = 0
		d.fail("no schema", "expected \"schema\": %d in %s", schema, d.what)
	}
}

// Object takes an object, and calls value where the value of a field stands.
func (d *Reader) Object(value func(field string)) {
	if d.next() != '{' {
		d.other("expected an object, {")
		return
	}
	d.at++
	var few [8]string
	seen := few[:0]
	for more := d.next() != '}'; more && d.fault == nil; more = d.separated('}', "after object key:value pair") {
		if d.next() != '"' {
			d.invalid("looking for beginning of object key string")
			return
		}
		field := d.word()
		if slices.Contains(seen, field) {
			d.Found(field, "which is there already: give it once")
			return
		}
		seen = append(seen, field)
		start := d.start
		if d.next() != ':' {
			d.invalid("after object key")
			return
		}
		d.at++
		d.start, d.field = start, field
		value(field)
	}
	d.at++
}

// List takes a list of at most so many values, and calls value where each stands.
func (d *Reader) List(most int, value func()) {
	if d.next() != '[' {
		d.other("expected a list, [")
		return
	}
	d.at++
	n := 0
	for more := d.next() != ']'; more && d.fault == nil; more = d.separated(']', "after array element") {
		if d.next(); n == most {
			d.fail("one more value", "expected at most %d", most)
			return
		}
		value()
		n++
	}
	d.at++
}

// Whole takes a whole number from low to high.
func (d *Reader) Whole(what string, low, high int64) int64 {
	if c := d.next(); c != '-' && (c < '0' || c > '9') {
		d.other("expected %s as a whole number from %d to %d", what, low, high)
		return low
	}
	number := d.number()
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < low || n > high {
		d.fail(shorten(number), "expected %s as a whole number from %d to %d", what, low, high)
		return low
	}
	return n
}

// Word takes a string.
func (d *Reader) Word() string {
	if d.next() != '"' {
		d.other("expected a string")
		return ""
	}
	return d.word()
}

// Flag takes true or false.
func (d *Reader) Flag() bool {
	switch d.next() {
	case 't':
		d.literal("true")
		return true
	case 'f':
		d.literal("false")
	default:
		d.other("expected true or false")
	}
	return false
}

// Unknown is the fault of a field that was just taken.
func (d *Reader) Unknown(expected string) {
	d.fail("an unknown field "+strconv.Quote(shorten(d.field)), "expected %s", expected)
}

// Found is the fault of a string that was just taken.
func (d *Reader) Found(word, format string, args ...any) {
	d.fail(strconv.Quote(shorten(word)), format, args...)
}

// other is the fault of a value that is none of those that are expected.
func (d *Reader) other(format string, args ...any) {
	what := ""
	switch c := d.next(); c {
	case '{', '[':
		what = string(c)
	case '"':
		what = strconv.Quote(shorten(d.word()))
	case 't':
		what = "true"
	case 'f':
		what = "false"
	case 'n':
		what = "null"
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		what = shorten(d.number())
	default:
		d.invalid("looking for beginning of value")
	}
	if what == "true" || what == "false" || what == "null" {
		d.literal(what)
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
	before := d.text[:d.start]
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
