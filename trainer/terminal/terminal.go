package terminal

import (
	"io"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Quote returns a name in one line. Control characters, characters that change the direction of
// text, and bytes that are not UTF-8 are in Go's notation, such as \x1b for an escape. Quote does
// not change other characters.
func Quote(name string) string {
	quoted, rest := quote(nil, []byte(name), false)
	for _, b := range rest { // an incomplete character
		quoted = appendByte(quoted, b)
	}
	return string(quoted)
}

// Writer returns a writer of text that quotes the same characters as Quote, except newlines and tabs. Write returns
// the number of bytes that it was given. The writer keeps an incomplete character until the next call completes
// it.
func Writer(w io.Writer) io.Writer { return &writer{w: w} }

// Output is a writer that keeps its first error and writes nothing after it, so that a program can
// check once, at its end, whether everything was written.
type Output struct {
	io.Writer
	Err error
}

// Write writes to the Writer, or returns the first error again.
func (o *Output) Write(p []byte) (int, error) {
	if o.Err != nil {
		return 0, o.Err
	}
	n, err := o.Writer.Write(p)
	o.Err = err
	return n, err
}

type writer struct {
	w    io.Writer
	held []byte // an incomplete character
	text []byte // scratch
}

func (t *writer) Write(p []byte) (int, error) {
	given := p
	if len(t.held) > 0 {
		given = append(t.held, p...)
	}
	text, rest := quote(t.text[:0], given, true)
	t.text, t.held = text, append([]byte(nil), rest...)
	if _, err := t.w.Write(text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// quote appends a text in quoted form, and returns an incomplete character at its end separately. It does not
// quote newlines and tabs if lines is true.
func quote(quoted, text []byte, lines bool) (all, rest []byte) {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && n == 1:
			if !utf8.FullRune(text) {
				return quoted, text
			}
			quoted = appendByte(quoted, text[0])
		case lines && (r == '\n' || r == '\t'):
			quoted = append(quoted, text[0])
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			word := strconv.QuoteRuneToASCII(r)
			quoted = append(quoted, word[1:len(word)-1]...)
		default:
			quoted = append(quoted, text[:n]...)
		}
		text = text[n:]
	}
	return quoted, nil
}

// appendByte appends a byte that does not belong to a character.
func appendByte(quoted []byte, b byte) []byte {
	const digits = "0123456789abcdef"
	return append(quoted, '\\', 'x', digits[b>>4], digits[b&15])
}
