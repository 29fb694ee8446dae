package memlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// fault is an error at a column of a line, from 1.
type fault struct {
	column int
	text   string
}

// Error returns "column: text".
func (f *fault) Error() string { return strconv.Itoa(f.column) + ": " + f.text }

func expected(column int, what string, found any) *fault {
	return &fault{column, fmt.Sprintf("expected %s, found %v", what, found)}
}

// short returns a value for an error message: its beginning, quoted where a terminal
// would not show it as it is.
func short(raw []byte) string {
	if cut, more := begin(raw, 40); !bytes.ContainsFunc(cut, unprintable) {
		return string(cut) + more
	}
	cut, more := begin(raw, 24)
	return strconv.Quote(string(cut)) + more
}

// begin returns at most so many bytes of a text, which do not end within a character, and
// dots for what is left out.
func begin(raw []byte, most int) (cut []byte, more string) {
	if len(raw) <= most {
		return raw, ""
	}
	for least := most - utf8.UTFMax; most > least && !utf8.RuneStart(raw[most]); {
		most--
	}
	return raw[:most], "..."
}

func unprintable(c rune) bool { return c == utf8.RuneError || !unicode.IsPrint(c) && c != '\t' }

// member is one key of an object and its value, not yet interpreted.
type member struct {
	key    string
	column int // of the value
	raw    []byte
}

// members splits the text of one object, which begins at a column of its line.
// Every value in it is valid JSON.
func members(text []byte, column int) (all []member, err error) {
	s := scanner{text: text, column: column}
	if !s.take('{') {
		return nil, s.found("an object") // not even its beginning
	}
	all = make([]member, 0, 20)
	for !s.take('}') {
		if len(all) > 0 && !s.take(',') {
			return nil, s.expected("a comma or the end of the object")
		}
		var m member
		raw, _ := s.value()
		if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &m.key) != nil {
			return nil, s.expected("a key or the end of the object")
		}
		s.pos += len(raw)
		if !s.take(':') {
			return nil, s.expected("a colon")
		}
		if m.raw, m.column = s.value(); !json.Valid(m.raw) {
			return nil, s.expected("a value of " + strconv.Quote(m.key))
		}
		s.pos += len(m.raw)
		all = append(all, m)
	}
	if s.space(); s.pos < len(s.text) {
		return nil, expected(s.column+s.pos, "the end of the line", short(s.text[s.pos:]))
	}
	return all, nil
}

// scanner walks over the text of an object.
type scanner struct {
	text   []byte
	pos    int
	column int // of text[0]
}

// space skips white space.
func (s *scanner) space() {
	for s.pos < len(s.text) && (s.text[s.pos] == ' ' || s.text[s.pos] == '\t' || s.text[s.pos] == '\r') {
		s.pos++
	}
}

// take skips white space and then c, or reports false.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.pos == len(s.text) || s.text[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

// value skips white space and returns what has the extent of a value, valid or
// not, and its column. It stays in front of it.
func (s *scanner) value() (raw []byte, column int) {
	s.space()
	rest := s.text[s.pos:]
	return rest[:extent(rest)], s.column + s.pos
}

// extent returns the length of the value at the start of text: to the bracket
// or quotation mark that closes it, or to what cannot be in a number or a name.
func extent(text []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case quoted && c == '"':
			if quoted = false; depth == 0 {
				return i + 1
			}
		case quoted:
		case c == '}' || c == ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case depth == 0 && i > 0 && bytes.IndexByte([]byte(" \t\r,:{[\""), c) >= 0:
			return i
		case c == '{' || c == '[':
			depth++
		case c == '"':
			quoted = true
		}
	}
	return len(text)
}

// expected says what should be at the scanner's place. Where a value begins there
// and has no end, the end of the line is what was found too early.
func (s *scanner) expected(what string) error {
	rest := s.text[s.pos:]
	n := extent(rest)
	if n == len(rest) && !json.Valid(rest) {
		return expected(s.column+len(s.text), what, "the end of the line")
	}
	return s.found(what)
}

// found says what is at the scanner's place, and what should be.
func (s *scanner) found(what string) error {
	rest := s.text[s.pos:]
	return expected(s.column+s.pos, what, short(rest[:min(max(extent(rest), 1), len(rest))]))
}
