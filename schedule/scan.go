package schedule

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ErrText is wrapped by every error about the text form of a plan.
var ErrText = errors.New("schedule: invalid plan text")

// MaxText is the most bytes that ParseText reads.
const MaxText = 64 << 20

// scanner takes a text apart into words. White space and comments, from # to the
// end of the line, stand between words and mean nothing else.
type scanner struct {
	name string // of the file, or ""
	text string
	pos  int // behind the current word

	word       string // the current word, "" at the end of the text
	line       int    // where it is, from 1
	lineStart  int    // of the line of pos
	column     int
	lineOfPos  int
	parseFault error // the first fault
}

// newScanner reads the text, no more than the limit of it.
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
		return nil, fmt.Errorf("%w: it is longer than %d bytes: write the plan as segments", ErrText, MaxText)
	}
	s.text = string(text)
	s.next()
	return s, nil
}

// next goes on to the next word. A quoted string is one word.
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
			start := s.pos
			if quoted, err := strconv.QuotedPrefix(s.text[start:]); err == nil && c == '"' {
				s.pos += len(quoted)
			}
			for s.pos < len(s.text) && !isSpace(s.text[s.pos]) {
				s.pos++
			}
			s.word = s.text[start:s.pos]
			return
		}
	}
	s.line, s.column, s.word = s.lineOfPos, s.pos-s.lineStart+1, ""
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// fail notes that the current word is not what was expected. Only the first
// fault is kept: what follows it is likely to come from it. After a fault there
// are no more words.
func (s *scanner) fail(format string, args ...any) {
	if s.parseFault != nil {
		return
	}
	found := "the end of the text"
	if s.word != "" {
		found = strconv.Quote(shorten(s.word))
	}
	place := fmt.Sprintf("line %d:%d", s.line, s.column)
	if s.name != "" {
		place = fmt.Sprintf("%s:%d:%d", s.name, s.line, s.column)
	}
	s.parseFault = fmt.Errorf("%w: %s: found %s, %s", ErrText, place, found, fmt.Sprintf(format, args...))
	s.pos, s.word = len(s.text), ""
}

func shorten(word string) string {
	const limit = 40
	if len(word) > limit {
		return word[:limit] + "..."
	}
	return word
}

// keyword takes a word that must be this one.
func (s *scanner) keyword(word string) {
	if s.word != word {
		s.fail("expected %s", word)
		return
	}
	s.next()
}

// number takes a number from low to high, without a sign, behind which the end of
// the word is this.
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
