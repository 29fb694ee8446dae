package terminal

import (
	"bytes"
	"io"
	"os"
	"regexp"
)

// Bold is a writer that shows headings in bold: lines such as "Flags:". It keeps the last line until it is complete
// or Flush is called.
type Bold struct {
	w    io.Writer
	line []byte
}

// NewBold returns a Bold that writes to w, a terminal, or nil if the environment asks for plain text (NO_COLOR,
// TERM=dumb).
func NewBold(w io.Writer) *Bold {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Bold{w: w}
}

var heading = regexp.MustCompile(`^[A-Z][A-Za-z ]*:\n$`)

// Write writes the complete lines, and keeps the rest until its line is complete.
func (b *Bold) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		b.line = append(b.line, part...)
		if b.line[len(b.line)-1] == '\n' {
			if err := b.Flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

// Flush writes what Write has kept.
func (b *Bold) Flush() error {
	line := b.line
	if heading.Match(line) {
		line = append(append([]byte("\x1b[1m"), line[:len(line)-1]...), "\x1b[0m\n"...)
	}
	b.line = b.line[:0]
	_, err := b.w.Write(line)
	return err
}
