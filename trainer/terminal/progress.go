package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

const (
	plainLines = 16                     // approximate number of lines if the output is not a terminal
	refresh    = 100 * time.Millisecond // minimum time between two updates on a terminal
)

// Progress is the progress line of a long-running program: it rewrites one line in place on a terminal, and
// writes a few plain lines elsewhere, so that a log of the output stays short. It ignores errors of its
// writer.
type Progress struct {
	w                      io.Writer
	columns                int
	first, total, interval int
	begin, drawn           time.Time
	written                int // characters on the terminal
}

// NewProgress returns the progress line of a program that has already completed first of total steps. columns
// is the width of the terminal behind w, or 0 if w does not write to a terminal.
func NewProgress(w io.Writer, columns, first, total int) *Progress {
	return &Progress{w: w, columns: columns, first: first, total: total, begin: time.Now(), interval: max((total-first+plainLines-1)/plainLines, 1)}
}

// Columns returns the width of a terminal in characters, 80 if it is unknown, or 0 if w is not a terminal.
func Columns(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return 0
	}
	if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
		return columns
	}
	return 80
}

// Step shows the number of completed steps. It calls text only if it writes: text returns a line, and a shorter
// one in case the first does not fit. left is the estimated time for the remaining steps.
func (l *Progress) Step(done int, text func(left time.Duration) (long, short string)) {
	last, now := done == l.total, time.Now()
	if l.columns == 0 && done%l.interval != 0 && !last || l.columns > 0 && now.Sub(l.drawn) < refresh && !last {
		return
	}
	l.drawn = now
	left := now.Sub(l.begin) / time.Duration(max(done-l.first, 1)) * time.Duration(l.total-done)
	long, short := text(left.Round(time.Second))
	if l.columns == 0 {
		fmt.Fprintln(l.w, long)
		return
	}
	if utf8.RuneCountInString(long) >= l.columns {
		long = short
	}
	runes := []rune(long)
	runes = runes[:min(len(runes), l.columns-1)]
	fmt.Fprint(l.w, "\r", string(runes), strings.Repeat(" ", max(l.written-len(runes), 0)))
	l.written = len(runes)
}

// End moves to the next line of a terminal.
func (l *Progress) End() {
	if l.written > 0 {
		fmt.Fprintln(l.w)
		l.written = 0
	}
}
