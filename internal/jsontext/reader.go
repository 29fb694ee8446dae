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

// ErrLong is returned for a text that exceeds its limit.
var ErrLong = errors.New("jsontext: the text is too long")

// Reader reads the values of a text one by one. It is not safe for concurrent use.
type Reader struct {
	name    string // name of the file, or ""
	content string // what faults call the text
	text    []byte
	valid   int               // length of the part that is JSON
	syntax  *json.SyntaxError // the syntax error at valid; nil if all of the text is JSON
	at      int               // offset of the first byte not yet taken
	start   int               // offset of the last token taken
	field   string            // the last field taken
	fault   *Fault
}

// Fault is an error at a place in a text.
type Fault struct {
	Line, Column int
	Place        string // the place in words: file:line:column, or line and column if the text has no name
	Text         string // what was found and what was expected
}

// New reads a whole text of at most most bytes. It returns ErrLong if the text is longer. content
// names the text in faults, such as "the costs". If r has a Name method, as files do, the name is
// part of a fault's place.
func New(r io.Reader, most int64, content string) (*Reader, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, ErrLong
	}
	name := ""
	if file, ok := r.(interface{ Name() string }); ok {
		name = file.Name()
	}
	return Of(text, name, content), nil
}

// Of returns a reader of a text. name is the name of its file, or "". The reader borrows the text.
func Of(text []byte, name, content string) *Reader {
	d := &Reader{text: text, name: name, content: content, valid: len(text)}
	if json.Valid(text) {
		return d
	}
	var all json.RawMessage
	if syntax, wrong := errors.AsType[*json.SyntaxError](json.Unmarshal(text, &all)); wrong {
		d.syntax = syntax
		if !strings.HasPrefix(syntax.Error(), endsEarly) {
			d.valid = int(syntax.Offset) - 1
		}
	}
	return d
}

// endsEarly is the beginning of encoding/json's error for a text that ends too early.
const endsEarly = "unexpected end"

// invalid records, at the end of the valid text, the fault that encoding/json found.
func (d *Reader) invalid() {
	if d.fault != nil {
		return
	}
	d.start = d.valid
	switch text := d.syntax.Error(); {
	case strings.HasPrefix(text, endsEarly):
		d.fail("the end of the text", "expected more of %s", d.content)
	case strings.HasSuffix(text, "after top-level value"):
		d.fail("something behind "+d.content, "expected the end of the text")
	default:
		rest := d.text[d.valid:]
		if n := bytes.IndexAny(rest, " \t\r\n,:]}"); n >= 0 {
			rest = rest[:max(n, 1)]
		}
		expected := "true, false or null"
		for _, reason := range reasons {
			if strings.HasSuffix(text, reason.of) {
				expected = reason.expected
			}
		}
		d.fail(strconv.Quote(shorten(string(rest))), "expected %s", expected)
	}
}

// reasons lists endings of encoding/json's errors, each with the text that was expected.
var reasons = []struct{ of, expected string }{
	{"beginning of value", "a value"},
	{"beginning of object key string", "the name of a field, in quotes"},
	{"after object key", "a colon"},
	{"after object key:value pair", "a comma or }"},
	{"after array element", "a comma or ]"},
	{"in string literal", "the rest of a string, without control characters"},
	{"escape code", "an escape of JSON, such as \\n"},
	{"character escape", "four hexadecimal digits"},
	{"numeric literal", "a digit"},
	{"max depth", "values that are less deep inside of others"},
}

// Fault returns the first fault, or nil.
func (d *Reader) Fault() *Fault { return d.fault }

// Start returns the offset of the last token taken, in bytes.
func (d *Reader) Start() int { return d.start }

// Ahead returns the offset of the next token, in bytes.
func (d *Reader) Ahead() int {
	d.next()
	return d.start
}

// next goes to the next token and returns its first byte, or 0 after a fault.
func (d *Reader) next() byte {
	for d.at < d.valid && strings.IndexByte(" \t\r\n,:", d.text[d.at]) >= 0 {
		d.at++
	}
	switch {
	case d.fault != nil:
		return 0
	case d.at == d.valid:
		d.invalid()
		return 0
	}
	d.start = d.at
	return d.text[d.at]
}

// take takes the next token and returns its text, or nil after a fault.
func (d *Reader) take() []byte {
	c := d.next()
	if c == 0 {
		return nil
	}
	rest := d.text[d.at:d.valid]
	n := 1
	switch c {
	case '{', '}', '[', ']':
	case '"':
		for n < len(rest) && rest[n] != '"' {
			if rest[n] == '\\' {
				n++
			}
			n++
		}
		if n++; n > len(rest) {
			d.at = d.valid
			d.invalid()
			return nil
		}
	default:
		if n = bytes.IndexAny(rest, " \t\r\n,:]}"); n < 0 {
			n = len(rest)
		}
	}
	d.at += n
	return rest[:n]
}

// word takes a string, or the name of a field.
func (d *Reader) word() (word string) {
	token := d.take()
	if token == nil {
		return ""
	}
	if token = token[1 : len(token)-1]; !bytes.ContainsFunc(token, func(c rune) bool { return c == '\\' || c > '~' }) {
		return string(token)
	}
	_ = json.Unmarshal(d.text[d.start:d.at], &word) // It is a valid string.
	return word
}

// Raw skips a value and returns its text, which the reader owns.
func (d *Reader) Raw() []byte {
	begin := d.Ahead()
	for depth := 0; d.fault == nil; {
		switch token := d.take(); {
		case token == nil:
		case token[0] == '{' || token[0] == '[':
			depth++
		case token[0] == '}' || token[0] == ']':
			depth--
		}
		if depth == 0 {
			break
		}
	}
	return d.text[begin:d.at]
}

// End reports a fault if text follows the last value, or if the schema was not given.
func (d *Reader) End(schema int, given bool) {
	if d.syntax != nil {
		d.invalid()
	}
	if !given {
		d.start = 0
		d.fail("no schema", "expected \"schema\": %d in %s", schema, d.content)
	}
}

// Object takes an object, and calls value at each field's value.
func (d *Reader) Object(value func(field string)) {
	if d.next() != '{' {
		d.other("expected an object, {")
		return
	}
	d.take()
	var few [16]string
	seen, more := few[:0], map[string]bool{} // most objects have few fields
	for d.next() == '"' {
		field := d.word()
		if slices.Contains(seen, field) || more[field] {
			d.Found(field, "which is there already: give it once")
			return
		}
		if len(seen) < cap(seen) {
			seen = append(seen, field)
		} else {
			more[field] = true
		}
		d.field = field
		value(field)
	}
	d.take()
}

// List takes a list of at most most values, and calls value at each of them.
func (d *Reader) List(most int, value func()) {
	if d.next() != '[' {
		d.other("expected a list, [")
		return
	}
	d.take()
	for n := 0; d.next() != ']' && d.fault == nil; n++ {
		if n == most {
			d.fail("one more value", "expected at most %d", most)
			return
		}
		value()
	}
	d.take()
}

// Whole takes a whole number from low to high.
func (d *Reader) Whole(name string, low, high int64) int64 {
	if c := d.next(); c != '-' && (c < '0' || c > '9') {
		d.other("expected %s as a whole number from %d to %d", name, low, high)
		return low
	}
	number := string(d.take())
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < low || n > high {
		d.fail(shorten(number), "expected %s as a whole number from %d to %d", name, low, high)
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
	if c := d.next(); c != 't' && c != 'f' {
		d.other("expected true or false")
		return false
	}
	return d.take()[0] == 't'
}

// Unknown reports that the field that was just taken is unknown.
func (d *Reader) Unknown(expected string) {
	d.fail("an unknown field "+strconv.Quote(shorten(d.field)), "expected %s", expected)
}

// Found reports a fault in the string that was just taken.
func (d *Reader) Found(word, format string, args ...any) {
	d.fail(strconv.Quote(shorten(word)), format, args...)
}

// Wrong reports a fault at an offset in the text, in bytes.
func (d *Reader) Wrong(offset int, text string) {
	if d.fault == nil {
		d.start = offset
		d.fail("", "%s", text)
	}
}

// other takes a value of an unexpected kind, and reports it.
func (d *Reader) other(format string, args ...any) {
	var found string
	if d.next() == '"' {
		found = strconv.Quote(shorten(d.word()))
	} else {
		found = shorten(string(d.take()))
	}
	d.fail(found, format, args...)
}

// shorten returns the beginning of a long text.
func shorten(s string) string {
	const most = 40
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// fail records a fault at the last token, if it is the reader's first fault.
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
