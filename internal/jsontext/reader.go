package jsontext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrLong is returned for a text that exceeds its limit.
var ErrLong = errors.New("jsontext: the text is too long")

// Reader reads the values of a text one by one. It is not safe for concurrent use.
type Reader struct {
	name    string // name of the file, or ""
	content string // what faults call the text
	text    []byte
	in      *jsontext.Decoder
	start   int    // offset of the last token taken
	field   string // the last field taken
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
	// Object itself reports a repeated name, and a text may have one in a value that is skipped.
	in := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	return &Reader{text: text, name: name, content: content, in: in}
}

// invalid records the fault of syntax at which the decoder stopped. The decoder's state says what was
// expected there: the text of its error differs between versions.
func (d *Reader) invalid(err error) {
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok || errors.Is(err, io.ErrUnexpectedEOF) {
		d.start = len(d.text)
		d.fail("the end of the text", "expected more of %s", d.content)
		return
	}
	d.start = int(syntax.ByteOffset)
	read := d.text[d.in.InputOffset():d.start]
	token := bytes.TrimLeft(read, separators)
	delimited := len(bytes.TrimRight(read[:len(read)-len(token)], space)) > 0
	depth := d.in.StackDepth()
	kind, n := d.in.StackIndex(depth)
	value := kind != '{' || n%2 == 1
	if d.text[d.start] == ',' && !delimited && n > 0 && (kind == '[' || !value) { // The decoder stops at a comma that nothing follows.
		rest := bytes.TrimLeft(d.text[d.start+1:], space)
		d.start, delimited = len(d.text)-len(rest), true
	}
	var expected string
	switch {
	case len(token) > 0 && token[0] == '"' && d.text[d.start] == '\\':
		expected = "an escape of JSON, such as \\n or \\u00e9"
	case len(token) > 0 && token[0] == '"':
		expected = "the rest of a string, without control characters"
	case len(token) > 0 && token[0] >= 'a':
		expected = "true, false or null"
	case len(token) > 0:
		expected = "a digit"
	case depth == deepest:
		expected = "values that are less deep inside of others"
	case kind == '{' && value && !delimited:
		expected = "a colon"
	case n > 0 && !delimited:
		expected = "a comma or " + string(kind+2) // '[' and '{' are two before their ends.
	case value:
		expected = "a value"
	default:
		expected = "the name of a field, in quotes"
	}
	rest := d.text[d.start:]
	if n := bytes.IndexAny(rest, separators+"]}"); n >= 0 {
		rest = rest[:max(n, 1)]
	}
	d.fail(strconv.Quote(shorten(string(rest))), "expected %s", expected)
}

const (
	space      = " \t\r\n"
	separators = space + ",:"
	deepest    = 10000 // the decoder's limit
)

// Fault returns the first fault, or nil.
func (d *Reader) Fault() *Fault { return d.fault }

// Start returns the offset of the last token taken, in bytes.
func (d *Reader) Start() int { return d.start }

// Ahead returns the offset of the next token, in bytes.
func (d *Reader) Ahead() int {
	d.next()
	return d.start
}

// next goes to the next token and returns its kind, or 0 after a fault.
func (d *Reader) next() jsontext.Kind {
	if d.fault != nil {
		return 0
	}
	kind := d.in.PeekKind()
	if kind == jsontext.KindInvalid {
		_, err := d.in.ReadToken()
		d.invalid(err)
		return 0
	}
	d.start = len(d.text) - len(bytes.TrimLeft(d.text[d.in.InputOffset():], separators))
	return kind
}

// take takes the next token and returns its text, a string without quotes, or "" after a fault.
func (d *Reader) take() string {
	if d.next() == 0 {
		return ""
	}
	token, err := d.in.ReadToken()
	if err != nil {
		d.invalid(err)
		return ""
	}
	return token.String()
}

// Raw skips a value and returns its text, which the reader owns, or nil after a fault.
func (d *Reader) Raw() []byte {
	begin := d.Ahead()
	if d.fault != nil {
		return nil
	}
	if err := d.in.SkipValue(); err != nil {
		d.invalid(err)
		return nil
	}
	return d.text[begin:d.in.InputOffset()]
}

// End reports a fault if text follows the last value, or if the schema was not given.
func (d *Reader) End(schema int, given bool) {
	if rest := bytes.TrimLeft(d.text[d.in.InputOffset():], space); d.fault == nil && len(rest) > 0 {
		d.start = len(d.text) - len(rest)
		d.fail("something behind "+d.content, "expected the end of the text")
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
		field := d.take()
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
	if d.next() != '0' {
		d.other("expected %s as a whole number from %d to %d", name, low, high)
		return low
	}
	number := d.take()
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
	return d.take()
}

// Flag takes true or false.
func (d *Reader) Flag() bool {
	if c := d.next(); c != 't' && c != 'f' {
		d.other("expected true or false")
		return false
	}
	return d.take() == "true"
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
		found = strconv.Quote(shorten(d.take()))
	} else {
		found = shorten(d.take())
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
