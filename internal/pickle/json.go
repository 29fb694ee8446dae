package pickle

import (
	"encoding/json"
	"errors"
	"io"
	"math"
)

// ReadJSON reads one value of JSON, and nothing but space behind it. An object becomes a
// Dict, an array a List, and a number without a fraction or an exponent an Integer.
func ReadJSON(r io.Reader, options Options) (*Data, error) {
	d := newData(r, options)
	tokens := json.NewDecoder(&spaced{r: d.r, fault: d.fault})
	tokens.UseNumber()
	for {
		token, err := tokens.Token()
		d.offset = tokens.InputOffset()
		if syntax, wrong := errors.AsType[*json.SyntaxError](err); wrong {
			return nil, d.fault(d.offset, "%v", syntax)
		}
		if err == io.EOF && len(d.marks) == 0 && len(d.stack) == 1 {
			d.top = d.stack[0]
			return d.read(), nil
		}
		if errors.Is(err, d.Err) {
			return nil, err
		}
		if err != nil {
			return nil, d.ended(err, "before its last bracket")
		}
		if len(d.marks) == 0 && len(d.stack) == 1 {
			return nil, d.fault(d.offset, "%v follows the value: the file should end there", token)
		}
		if err := d.token(token); err != nil {
			return nil, err
		}
	}
}

// token takes a step of the unpickler for a token: what is open lies above a mark.
func (d *Data) token(token json.Token) error {
	switch t := token.(type) {
	case json.Delim:
		switch t {
		case ']':
			return d.extendMarked(d.offset, List)
		case '}':
			return d.extendMarked(d.offset, Dict)
		}
		kind := List
		if t == '{' {
			kind = Dict
		}
		if err := d.pushContainer(kind, nil); err != nil {
			return err
		}
		return d.step(d.offset, OpMark)
	case string:
		if len(t) > longest {
			return d.fault(d.offset, "a text of %d bytes; at most %d are read", len(t), longest)
		}
		if err := d.Hold(int64(len(t))); err != nil {
			return err
		}
		return d.pushString(t)
	case bool:
		v := Value{Kind: Boolean}
		if t {
			v.Bits = 1
		}
		return d.push(v)
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return d.push(Value{Kind: Integer, Bits: n})
		}
		x, err := t.Float64()
		if err != nil {
			return d.fault(d.offset, "%v is no number that can be held", t)
		}
		return d.push(Value{Kind: Float, Bits: int64(math.Float64bits(x))})
	}
	return d.push(Value{})
}

// spaced refuses runs of space that are longer than any text: encoding/json goes over space again
// with every part of it that comes.
type spaced struct {
	r     io.Reader
	run   int
	at    int64
	fault func(at int64, format string, args ...any) error
}

func (s *spaced) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	for _, b := range p[:n] {
		if s.at++; b != ' ' && b != '\n' && b != '\t' && b != '\r' {
			s.run = 0
		} else if s.run++; s.run > longest {
			return 0, s.fault(s.at, "more than %d bytes of space", longest)
		}
	}
	return n, err
}
