package progress

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
	plainLines = 16                     // of a run whose output is no terminal
	refresh    = 100 * time.Millisecond // between two writings of the line on a terminal
)

// Line is the line of one program. It keeps no error of its writer.
type Line struct {
	w                      io.Writer
	columns                int
	first, total, interval int
	begin, drawn           time.Time
	written                int // characters that stand on the terminal
}

// New returns the line of a program that has done first of total steps before it begins.
// Columns are those of the terminal that w leads to, 0 where it leads to none.
func New(w io.Writer, columns, first, total int) *Line {
	return &Line{w: w, columns: columns, first: first, total: total, begin: time.Now(), interval: max((total-first+plainLines-1)/plainLines, 1)}
}

// Columns returns how wide the terminal is that w is, 0 where it is none.
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

// Step shows that so many steps are done. It asks say only where something is to be
// written: for a line, and for a shorter one where that does not fit. Left is how long the
// rest takes at the pace so far.
func (l *Line) Step(done int, say func(left time.Duration) (long, short string)) {
	last, now := done == l.total, time.Now()
	if l.columns == 0 && done%l.interval != 0 && !last || l.columns > 0 && now.Sub(l.drawn) < refresh && !last {
		return
	}
	l.drawn = now
	left := now.Sub(l.begin) / time.Duration(max(done-l.first, 1)) * time.Duration(l.total-done)
	long, short := say(left.Round(time.Second))
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

// End leaves the line that is rewritten.
func (l *Line) End() {
	if l.written > 0 {
		fmt.Fprintln(l.w)
		l.written = 0
	}
}
