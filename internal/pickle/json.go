package pickle

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
)

// deepest is how many lists and objects of JSON may be open at once.
const deepest = 1000

// ReadJSON reads one value of JSON, and nothing but space behind it. An object becomes a
// Dict, an array a List, and a number without a fraction or an exponent an Integer.
func ReadJSON(r io.Reader, options Options) (*Data, error) {
	p := parser{Data: newData(r, options)}
	if err := p.value(0); err != nil {
		return nil, err
	}
	if b, err := p.next(); err == nil {
		return nil, p.fault(p.offset-1, "%q follows the value: the file should end there", b)
	} else if !errors.Is(err, io.EOF) {
		return nil, p.ended(err, "")
	}
	p.top = p.stack[0]
	return p.read(), nil
}

// parser reads JSON with the stack of an unpickler: the values of a list that is open are
// above its mark.
type parser struct {
	*Data
	word []byte
}

// next returns the first byte that is no space.
func (p *parser) next() (byte, error) {
	for {
		b, err := p.byte()
		if err != nil || b != ' ' && b != '\n' && b != '\t' && b != '\r' {
			return b, err
		}
	}
}

// back undoes the byte that was read last.
func (p *parser) back() {
	_ = p.r.UnreadByte() // A byte was read right before.
	p.offset--
}

// value reads a value and pushes it.
func (p *parser) value(depth int) error {
	b, err := p.next()
	switch {
	case err != nil:
		return p.ended(err, "where a value belongs")
	case b == '{':
		return p.list(Dict, '}', depth+1)
	case b == '[':
		return p.list(List, ']', depth+1)
	case b == '"':
		return p.quoted()
	}
	p.back()
	return p.scalar()
}

// list reads the values of a list or an object up to its end.
func (p *parser) list(kind Kind, end byte, depth int) error {
	if depth > deepest {
		return p.fault(p.offset, "more than %d lists are open", deepest)
	}
	err := p.pushContainer(kind, nil)
	if err == nil {
		err = p.step(p.offset, OpMark)
	}
	if err != nil {
		return err
	}
	b, err := p.next()
	for err == nil && b != end {
		p.back()
		if err := p.element(kind, depth); err != nil {
			return err
		}
		if b, err = p.next(); err != nil || b == end {
			break
		}
		if b != ',' {
			return p.fault(p.offset-1, "%q, where a comma or %q belongs", b, end)
		}
		if b, err = p.next(); err == nil && b == end {
			return p.fault(p.offset-1, "%q follows a comma, where a value belongs", b)
		}
	}
	if err != nil {
		return p.ended(err, "within a list")
	}
	return p.extendMarked(p.offset, kind)
}

// element reads an element of a list, or a key of an object and its value.
func (p *parser) element(kind Kind, depth int) error {
	if kind == Dict {
		for _, want := range []byte{'"', ':'} {
			b, err := p.next()
			if err != nil {
				return p.ended(err, "within an object")
			}
			if b != want {
				return p.fault(p.offset-1, "%q, where %q belongs", b, want)
			}
			if want == '"' {
				if err := p.quoted(); err != nil {
					return err
				}
			}
		}
	}
	return p.value(depth)
}

// quoted reads a text behind its first quotation mark.
func (p *parser) quoted() error {
	at, plain := p.offset-1, true
	p.word = append(p.word[:0], '"')
	for {
		part, err := p.r.ReadSlice('"')
		p.offset += int64(len(part))
		p.word = append(p.word, part...)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return p.ended(err, "within a text")
		}
		if len(p.word) > longest {
			return p.fault(at, "a text of more than %d bytes", longest)
		}
		for _, b := range part {
			plain = plain && b != '\\' && b >= ' '
		}
		if err == nil && !p.escaped() {
			break
		}
	}
	if plain {
		return p.text(string(p.word[1 : len(p.word)-1]))
	}
	var text string
	if err := json.Unmarshal(p.word, &text); err != nil {
		return p.fault(at, "%s is no text", p.word[:min(len(p.word), 40)])
	}
	return p.text(text)
}

// text pushes a text.
func (p *parser) text(s string) error {
	if err := p.Hold(int64(len(s))); err != nil {
		return err
	}
	return p.pushString(s)
}

// escaped reports whether the last quotation mark of the word is part of the text.
func (p *parser) escaped() bool {
	backslashes := 0
	for i := len(p.word) - 2; i > 0 && p.word[i] == '\\'; i-- {
		backslashes++
	}
	return backslashes%2 == 1
}

// scalar reads a number, true, false or null.
func (p *parser) scalar() error {
	at := p.offset
	p.word = p.word[:0]
	for {
		b, err := p.byte()
		if err != nil && !errors.Is(err, io.EOF) {
			return p.ended(err, "")
		}
		letter := b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '-' || b == '+' || b == '.'
		if err != nil || !letter || len(p.word) > 64 {
			if err == nil {
				p.back()
			}
			break
		}
		p.word = append(p.word, b)
	}
	word := string(p.word)
	switch word {
	case "null":
		return p.push(Value{})
	case "true":
		return p.push(Value{Kind: Boolean, Bits: 1})
	case "false":
		return p.push(Value{Kind: Boolean})
	}
	if n, err := strconv.ParseInt(word, 10, 64); err == nil {
		return p.push(Value{Kind: Integer, Bits: n})
	}
	x, err := strconv.ParseFloat(word, 64)
	if err != nil || !json.Valid(p.word) {
		return p.fault(at, "%q, where a value belongs", word)
	}
	return p.push(Value{Kind: Float, Bits: int64(math.Float64bits(x))})
}
