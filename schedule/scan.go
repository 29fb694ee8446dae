package schedule

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// ErrText is wrapped by every error about the text form of a plan.
var ErrText = errors.New("schedule: invalid plan text")

// The limits of ParseText. A plan within these limits in which every action is written out is checked
// in a second or two.
const (
	MaxText    = 64 << 20 // bytes
	MaxWritten = 1 << 21  // actions as written, without repeats
	MaxNested  = 1 << 25  // actions in one repeat of each loop of loops, summed over these loops
)

// scanner splits a text into words. White space separates words, and so do comments, from # to the
// end of the line.
type scanner struct {
	name string // the name of the file, or ""
	text string
	pos  int // the offset in text after the current word

	word       string // the current word, "" at the end of the text
	start      int    // the word's offset in the text
	line       int    // the word's line, from 1
	lineStart  int    // the offset of the line that contains pos
	column     int
	lineOfPos  int
	parseFault error // the first fault

	at      func(offset int) // called for every action; may be nil
	written int              // the number of actions read; see MaxWritten
	nested  int64            // see MaxNested
}

// newScanner reads a text of at most MaxText bytes, and returns a scanner at its first word.
func newScanner(r io.Reader) (*scanner, error) {
	s := &scanner{lineOfPos: 1}
	if file, ok := r.(interface{ Name() string }); ok {
		s.name = file.Name()
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxText+1))
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	if len(text) > MaxText {
		return nil, diagnostic.Errorf(ErrText, "it is longer than %d bytes: write the plan as segments", MaxText)
	}
	s.text = string(text)
	s.next()
	return s, nil
}

// next advances to the next word. A quoted string is one word.
func (s *scanner) next() {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == '\n':
			s.pos++
			s.lineOfPos, s.lineStart = s.lineOfPos+1, s.pos
		case isSpace(c):
			s.pos++
		case c == '#':
			for s.pos < len(s.text) && s.text[s.pos] != '\n' {
				s.pos++
			}
		default:
			s.line, s.column = s.lineOfPos, s.pos-s.lineStart+1
			s.start = s.pos
			if quoted, err := strconv.QuotedPrefix(s.text[s.start:]); err == nil && c == '"' {
				s.pos += len(quoted)
			}
			for s.pos < len(s.text) && !isSpace(s.text[s.pos]) {
				s.pos++
			}
			s.word = s.text[s.start:s.pos]
			return
		}
	}
	s.line, s.column, s.word = s.lineOfPos, s.pos-s.lineStart+1, ""
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// fail records a fault of the current word and ends the scan. It keeps only the first fault, which is
// likely to have caused the later ones.
func (s *scanner) fail(format string, args ...any) {
	if s.parseFault != nil {
		return
	}
	found := "the end of the text"
	if s.word != "" {
		found = strconv.Quote(shorten(s.word))
	}
	fault := fmt.Errorf("found %s, %s", found, fmt.Sprintf(format, args...))
	s.parseFault = &diagnostic.Error{Kind: ErrText, File: s.name, Line: s.line, Column: s.column, Err: fault}
	s.pos, s.word = len(s.text), ""
}

func shorten(word string) string {
	const limit = 40
	if len(word) > limit {
		return word[:limit] + "..."
	}
	return word
}

// keyword reads the current word, which must equal the given word.
func (s *scanner) keyword(word string) {
	if s.word != word {
		s.fail("expected %s", word)
		return
	}
	s.next()
}

// number reads a word that consists of an unsigned number from low to high, followed by end. After a fault it
// returns low.
func (s *scanner) number(what string, low, high int, end string) int {
	digits := s.word
	if n := len(digits) - len(end); n > 0 && digits[n:] == end {
		digits = digits[:n]
	} else if end != "" {
		digits = ""
	}
	n, ok := parseNumber(digits, high)
	if !ok || n < low {
		s.fail("expected %s from %d to %d%s", what, low, high, behind(end))
		return low
	}
	s.next()
	return n
}

func behind(end string) string {
	if end == "" {
		return ""
	}
	return " and " + end
}
