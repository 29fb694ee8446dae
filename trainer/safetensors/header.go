package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Info describes one tensor of a file.
type Info struct {
	Name  string
	DType DType
	Shape []int

	// Begin and End delimit the values within the data, in bytes.
	Begin, End int64
}

// headerParser reads the header's JSON token by token: encoding/json alone would accept
// duplicate keys and ignore unknown ones. It returns faults as plain errors, to which
// parseHeader adds the context.
type headerParser struct {
	dec      *json.Decoder
	infos    []Info
	metadata map[string]string
	seen     map[string]bool
}

// parseHeader parses and checks a header for a file with this many bytes of data. It returns
// the tensors in the order of their data.
func parseHeader(header []byte, data int64) ([]Info, map[string]string, error) {
	if !utf8.Valid(header) {
		return nil, nil, corrupt("the header is not UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return nil, nil, corrupt("the header starts with %.10q, expected \"{\"", header)
	}
	p := &headerParser{dec: json.NewDecoder(bytes.NewReader(header)), seen: map[string]bool{}}
	p.dec.UseNumber()
	if err := p.object(p.entry); err != nil {
		return nil, nil, corrupt("header byte %d: %v", p.dec.InputOffset(), err)
	}
	if rest := bytes.TrimLeft(header[p.dec.InputOffset():], " "); len(rest) > 0 {
		return nil, nil, corrupt("the header ends with %.10q, expected spaces", rest)
	}
	// Empty tensors share an offset with their successor, so that the end determines the order.
	slices.SortStableFunc(p.infos, func(a, b Info) int {
		if a.Begin != b.Begin {
			return int(min(1, max(-1, a.Begin-b.Begin)))
		}
		return int(min(1, max(-1, a.End-b.End)))
	})
	var end int64
	for _, t := range p.infos {
		if t.Begin != end {
			return nil, nil, corrupt("tensor %.80q begins at data byte %d, expected %d where the one before it ends", t.Name, t.Begin, end)
		}
		end = t.End
	}
	if end != data {
		return nil, nil, corrupt("the tensors have %d bytes and the file has %d for them", end, data)
	}
	return p.infos, p.metadata, nil
}

// object reads an object and passes each key to value, which reads the corresponding value.
func (p *headerParser) object(value func(key string) error) error {
	if err := p.delim('{'); err != nil {
		return err
	}
	for p.dec.More() {
		key, err := p.str()
		if err != nil {
			return err
		}
		if err := value(key); err != nil {
			return err
		}
	}
	return p.delim('}')
}

// entry reads the value of one key of the header.
func (p *headerParser) entry(name string) error {
	if p.seen[name] {
		return fmt.Errorf("a second entry %.80q", name)
	}
	p.seen[name] = true
	if name == metadataKey {
		p.metadata = map[string]string{}
		return p.object(func(key string) error {
			if _, dup := p.metadata[key]; dup {
				return fmt.Errorf("a second metadata key %.80q", key)
			}
			v, err := p.str()
			p.metadata[key] = v
			return err
		})
	}
	if fault := badName(name); fault != "" {
		return fmt.Errorf("tensor name %.80q %s", name, fault)
	}
	t := Info{Name: name, Begin: -1}
	err := p.object(func(key string) error { return p.field(&t, key) })
	if err != nil {
		return fmt.Errorf("tensor %.80q: %w", name, err)
	}
	if t.DType == "" || t.Shape == nil || t.Begin < 0 {
		return fmt.Errorf("tensor %.80q: expected dtype, shape and data_offsets", name)
	}
	size, ok := byteSize(t.DType, t.Shape)
	if !ok {
		return fmt.Errorf("tensor %.80q: the size of shape %.80v overflows", name, fmt.Sprint(t.Shape))
	}
	if t.End-t.Begin != size { // an end before its begin never equals a size
		return fmt.Errorf("tensor %.80q: data_offsets [%d,%d], expected %d bytes for %s of shape %.80v", name, t.Begin, t.End, size, t.DType, fmt.Sprint(t.Shape))
	}
	p.infos = append(p.infos, t)
	return nil
}

// field reads one property of a tensor.
func (p *headerParser) field(t *Info, key string) error {
	var again bool
	switch key {
	case "dtype":
		again = t.DType != ""
		d, err := p.str()
		if err != nil {
			return err
		}
		if t.DType = DType(d); t.DType.Size() == 0 {
			return fmt.Errorf("dtype %.80q is not supported", d)
		}
	case "shape":
		again = t.Shape != nil
		t.Shape = []int{}
		err := p.numbers(func(n int64) error {
			if int64(int(n)) != n {
				return fmt.Errorf("dimension %d is too large for this machine", n)
			}
			t.Shape = append(t.Shape, int(n))
			return nil
		})
		if err != nil {
			return err
		}
	case "data_offsets":
		again = t.Begin >= 0
		var at [2]int64
		count := 0
		err := p.numbers(func(n int64) error {
			if count < len(at) {
				at[count] = n
			}
			count++
			return nil
		})
		if err != nil {
			return err
		}
		if count != len(at) {
			return fmt.Errorf("data_offsets has %d numbers, expected 2", count)
		}
		t.Begin, t.End = at[0], at[1]
	default:
		return fmt.Errorf("unknown property %.80q, expected dtype, shape or data_offsets", key)
	}
	if again {
		return fmt.Errorf("a second %s", key)
	}
	return nil
}

// numbers reads an array of integers from 0 to 2^63 - 1.
func (p *headerParser) numbers(each func(int64) error) error {
	if err := p.delim('['); err != nil {
		return err
	}
	for p.dec.More() {
		tok, err := p.token()
		if err != nil {
			return err
		}
		text, ok := tok.(json.Number)
		if !ok {
			return fmt.Errorf("found %s, expected a number", describe(tok))
		}
		n, err := strconv.ParseUint(text.String(), 10, 63)
		if err != nil {
			return fmt.Errorf("found %.80s, expected an integer from 0 to 2^63 - 1", text)
		}
		if err := each(int64(n)); err != nil {
			return err
		}
	}
	return p.delim(']')
}

// token returns the next token; the end of the header is not a token.
func (p *headerParser) token() (json.Token, error) {
	tok, err := p.dec.Token()
	if err == io.EOF {
		err = errors.New("the header ends within a value")
	}
	return tok, err
}

func (p *headerParser) str() (string, error) {
	tok, err := p.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("found %s, expected a string", describe(tok))
	}
	return s, nil
}

func (p *headerParser) delim(want json.Delim) error {
	tok, err := p.token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("found %s, expected %q", describe(tok), want.String())
	}
	return nil
}

// describe returns a short form of a token on one line.
func describe(tok json.Token) string {
	switch v := tok.(type) {
	case string:
		return fmt.Sprintf("%.80q", v)
	case nil:
		return "null"
	}
	return strings.TrimSpace(fmt.Sprintf("%.80v", tok))
}
