package traces

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// scanner reads a stream of JSON and holds one value at a time. It does not parse the values that
// it skips.
type scanner struct {
	in  *bufio.Reader
	at  int64 // the number of bytes read
	buf []byte
}

// The maximum sizes of values that are held, in bytes.
const (
	maxEvent    = 256 << 10
	maxField    = 1 << 20
	maxResource = 64 << 20 // a batch of OpenTelemetry spans
)

// fault returns an error located at the last byte that was read.
func (s *scanner) fault(format string, args ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrTrace, s.at, fmt.Sprintf(format, args...))
}

// ended returns the error for a text that ended early or could not be read.
func (s *scanner) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if s.at == 0 {
			return fmt.Errorf("%w: the file is empty: export it anew", ErrTrace)
		}
		return s.fault("the file ends inside of a value: copy it again, or export it anew")
	}
	return fmt.Errorf("%w: byte %d: %w", ErrTrace, s.at, err)
}

// next returns the first byte of the next token without consuming it. It skips commas and colons.
func (s *scanner) next() (byte, error) {
	for {
		c, err := s.in.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\r', '\n', ',', ':':
			s.at++
		default:
			return c, s.in.UnreadByte()
		}
	}
}

// take consumes the byte that next returned.
func (s *scanner) take() {
	s.in.Discard(1) // It is in the buffer.
	s.at++
}

// value consumes the next value and returns its text, which is valid until the next call to value,
// or nil if the value has more than most bytes.
func (s *scanner) value(most int) ([]byte, error) {
	if _, err := s.next(); err != nil {
		return nil, s.ended(err)
	}
	s.buf = s.buf[:0]
	var v nesting
	for size, done := 0, false; !done; {
		_, err := s.in.Peek(1)
		if err == io.EOF && size > 0 && v.depth == 0 && !v.inString {
			break // A number or a word ends the file.
		}
		if err != nil {
			return nil, s.ended(err)
		}
		chunk, _ := s.in.Peek(s.in.Buffered())
		var n int
		if n, done = v.end(chunk); n == 0 && size == 0 {
			return nil, s.fault("found %q, expected a value", chunk[0])
		}
		if size += n; size <= most {
			s.buf = append(s.buf, chunk[:n]...)
		} else if s.buf = s.buf[:0]; size > maxSkipped {
			return nil, s.fault("a value has more than %d bytes", int64(maxSkipped))
		}
		s.in.Discard(n) // They are in the buffer.
		s.at += int64(n)
	}
	if len(s.buf) == 0 {
		return nil, nil
	}
	return s.buf, nil
}

// maxSkipped is the maximum size of a value that is skipped, in bytes.
const maxSkipped = 1 << 30

// nesting is the position of a text within a value.
type nesting struct {
	depth                    int
	begun, inString, escaped bool
}

// end returns how many bytes of a text belong to the value, and whether it ends there.
func (v *nesting) end(text []byte) (n int, done bool) {
	for i, c := range text {
		switch {
		case v.escaped:
			v.escaped = false
		case v.inString:
			v.escaped = c == '\\'
			if v.inString = c != '"'; !v.inString && v.depth == 0 {
				return i + 1, true
			}
		case c == '"' || c == '{' || c == '[':
			if v.begun && v.depth == 0 {
				return i, true
			}
			if v.inString = c == '"'; !v.inString {
				v.depth++
			}
		case c == '}' || c == ']':
			if v.depth == 0 {
				return i, true
			}
			if v.depth--; v.depth == 0 {
				return i + 1, true
			}
		case v.depth == 0 && (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':'):
			return i, true
		}
		v.begun = true
	}
	return len(text), false
}

// elements calls element with the first byte of each element of an object or a list, and consumes
// the brackets. element consumes the element.
func (s *scanner) elements(closing byte, element func(c byte) error) error {
	for s.take(); ; {
		c, err := s.next()
		switch {
		case err != nil:
			return s.ended(err)
		case c == closing:
			s.take()
			return nil
		}
		if err := element(c); err != nil {
			return err
		}
	}
}

// object calls field before the value of each field of an object. field consumes the value.
func (s *scanner) object(field func(name string) error) error {
	return s.elements('}', func(c byte) error {
		if c != '"' {
			return s.fault("found %q, expected the name of a field, in quotes", c)
		}
		key, err := s.value(maxEvent)
		if err != nil {
			return err
		}
		var name string
		if key == nil || json.Unmarshal(key, &name) != nil {
			return s.fault("the name of a field is no string of JSON")
		}
		return field(name)
	})
}

// list calls value with the text of each value in a list. It skips values longer than most bytes.
func (s *scanner) list(most int, value func(text []byte) error) error {
	if c, err := s.next(); err != nil {
		return s.ended(err)
	} else if c != '[' {
		return s.fault("found %q, expected a list, [", c)
	}
	return s.elements(']', func(byte) error {
		text, err := s.value(most)
		if err != nil || text == nil {
			return err
		}
		return value(text)
	})
}

// decode decodes the text of a field's value.
func (s *scanner) decode(field string, text []byte, v any) error {
	if json.Unmarshal(text, v) != nil {
		return s.fault("found %s %.60q, expected %s", field, text, forms[field])
	}
	return nil
}

// forms describes the expected value of each decoded field.
var forms = map[string]string{
	"baseTimeNanoseconds": "a whole number",
	"distributedInfo":     "an object whose rank and world_size are whole numbers",
	"resourceSpans":       "a list of batches of spans, as OTLP writes them in JSON",
	"name":                "a string",
	"start_time":          "a time, such as \"2026-11-29T12:00:00Z\"",
	"end_time":            "a time, such as \"2026-11-29T12:00:00Z\"",
	"attributes":          "an object",
	"resource":            "an object with attributes",
}
