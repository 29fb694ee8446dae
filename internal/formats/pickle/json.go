package pickle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"strconv"
)

// ReadJSON reads one JSON value, which only white space may follow. An object becomes a Dict, an
// array a List, and a number without a fraction or an exponent an Integer, or a Float if it needs
// more than 64 bits. Unlike JSON, it accepts leading zeros in an Integer and control characters in
// texts without escapes, but no number longer than 64 bytes.
func ReadJSON(r io.Reader, options Options) (*Data, error) {
	p := parser{Data: newData(r, options), words: map[string]Value{}}
	if err := p.value(p.next(), 0); err != nil {
		return nil, err
	}
	if c := p.next(); p.err != io.EOF {
		return nil, p.found(c, "the end of the file")
	}
	p.top = p.stack[0]
	return p.read(), nil
}

const (
	deepest   = 1000 // maximum nesting depth of lists and objects
	shortWord = 64   // longest number in bytes, and longest text that is stored once
)

// parser reads JSON with the stack of the unpickler.
type parser struct {
	*Data
	words map[string]Value // short texts
	word  []byte           // the last text, in quotes
	err   error            // the reader's error, when next returned 0
}

// next takes the next byte that is not white space. At the end of the file, or if the reader fails,
// it sets err and returns 0.
func (p *parser) next() byte {
	for {
		c, err := p.byte()
		if err != nil {
			p.err = err
			return 0
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
}

// found returns the error for a byte that was taken where something else was expected.
func (p *parser) found(c byte, expected string) error {
	if p.err != nil {
		return p.ended(p.err, "where "+expected+" is expected")
	}
	return p.fault(p.offset-1, "found %q, expected %s", c, expected)
}

// value reads the value that begins with c, and pushes it.
func (p *parser) value(c byte, depth int) error {
	switch {
	case depth > deepest:
		return p.fault(p.offset, "more than %d lists are open", deepest)
	case c == '{':
		return p.list(Dict, '}', depth)
	case c == '[':
		return p.list(List, ']', depth)
	case c == '"':
		return p.text()
	case c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z':
		return p.scalar()
	}
	return p.found(c, "a value")
}

// list reads an array or an object after its first bracket.
func (p *parser) list(kind Kind, end byte, depth int) error {
	if err := p.pushContainer(kind, nil); err != nil {
		return err
	}
	if err := p.step(p.offset, OpMark); err != nil {
		return err
	}
	for c := p.next(); c != end; {
		if kind == Dict {
			if c != '"' {
				return p.found(c, "a key in quotes")
			}
			if err := p.text(); err != nil {
				return err
			}
			if c = p.next(); c != ':' {
				return p.found(c, "a colon")
			}
			c = p.next()
		}
		if err := p.value(c, depth+1); err != nil {
			return err
		}
		if c = p.next(); c == ',' {
			if c = p.next(); c == end {
				return p.found(c, "a value after the comma")
			}
		} else if c != end {
			return p.found(c, "a comma or "+string(end))
		}
	}
	return p.extend(p.offset, kind, p.unmark())
}

// text reads a text after its first quotation mark.
func (p *parser) text() error {
	at := p.offset
	p.word = append(p.word[:0], '"')
	for open := true; open; {
		part, err := p.r.ReadSlice('"')
		p.offset += int64(len(part))
		p.word = append(p.word, part...)
		if err != nil && err != bufio.ErrBufferFull {
			return p.ended(err, "within a text")
		}
		if len(p.word) > longest {
			return p.fault(at, "a text of more than %d bytes", longest)
		}
		before := p.word[:len(p.word)-1]
		open = err != nil || (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 1 // the quotation mark is escaped
	}
	text := p.word[1 : len(p.word)-1]
	if v, known := p.words[string(text)]; known {
		return p.push(v)
	}
	own := string(text)
	if bytes.IndexByte(text, '\\') >= 0 {
		if err := json.Unmarshal(p.word, &own); err != nil {
			return p.fault(at, "a text with an escape or a control character that JSON does not allow: expected escapes such as \\n")
		}
	}
	if err := p.Hold(int64(len(own))); err != nil {
		return err
	}
	if err := p.pushString(own); err != nil || len(text) > shortWord {
		return err
	}
	p.words[string(text)] = p.stack[len(p.stack)-1]
	return p.Hold(64) // about what the map needs
}

// scalar reads a number, true, false or null, whose first byte was taken.
func (p *parser) scalar() error {
	_ = p.r.UnreadByte() // The previous call read a byte.
	p.offset--
	word, _ := p.r.Peek(shortWord + 1) // It is shorter at the end of the file.
	if n := bytes.IndexAny(word, " \t\r\n,:]}"); n >= 0 {
		word = word[:n]
	} else if len(word) > shortWord {
		return p.fault(p.offset, "a number of more than %d bytes", shortWord)
	}
	var v Value
	switch string(word) {
	case "null":
	case "true":
		v = Value{Kind: Boolean, Bits: 1}
	case "false":
		v = Value{Kind: Boolean}
	default:
		n, err := strconv.ParseInt(string(word), 10, 64)
		v = Value{Kind: Integer, Bits: n}
		if err != nil {
			x, err := strconv.ParseFloat(string(word), 64)
			if err != nil || !json.Valid(word) {
				return p.fault(p.offset, "found %q, expected a value", word)
			}
			v = Value{Kind: Float, Bits: int64(math.Float64bits(x))}
		}
	}
	p.offset += int64(len(word))
	if _, err := p.r.Discard(len(word)); err != nil {
		return err
	}
	return p.push(v)
}
