package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weir-ml/weir/trainer/units"
)

const (
	plainLines = 16                     // of a run whose output is no terminal
	refresh    = 100 * time.Millisecond // between two writings of the line on a terminal
)

// progress tells a person how far the run is: one line that is rewritten in place
// on a terminal, and a few plain lines elsewhere.
type progress struct {
	w        io.Writer
	columns  int // of the terminal, 0 where w is none
	written  int // characters of the line now
	total    int // steps
	interval int // steps between plain lines
	begin    time.Time
	drawn    time.Time
	first    int // steps done before this run
}

func newProgress(w *output, first, total int) *progress {
	p := &progress{w: w, total: total, first: first, begin: time.Now()}
	p.interval = max((total-first+plainLines-1)/plainLines, 1)
	if file, ok := w.Writer.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.columns = 80
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			p.columns = columns
		}
	}
	return p
}

// step shows a step; done counts from 1.
func (p *progress) step(done int, o outcome, r *record) {
	last := done == p.total
	now := time.Now()
	if p.columns == 0 && done%p.interval != 0 && !last || p.columns > 0 && now.Sub(p.drawn) < refresh && !last {
		return
	}
	p.drawn = now
	elapsed := now.Sub(p.begin)
	left := elapsed / time.Duration(max(done-p.first, 1)) * time.Duration(p.total-done)
	speed, live, peak := int64(r.speed()), units.Size(o.Live), units.Size(o.Peak)
	bubble := ""
	if len(o.Ranks) > 1 {
		bubble = "  bubble " + units.Percent(o.Bubble())
	}
	line := fmt.Sprintf("step %*d/%d  loss %.3f nats/byte  %s tokens/s%s  live %s  peak %s  growth %d B  left %s",
		len(fmt.Sprint(p.total)), done, p.total, o.loss, units.Count(speed), bubble, live, peak, r.growth(), left.Round(time.Second))
	if p.columns > 0 && len(line) >= p.columns { // the same for 80 columns
		line = fmt.Sprintf("%d/%d  %.3f nats/byte  %dk tok/s  live %s  peak %s  growth %d  %s",
			done, p.total, o.loss, speed/1000, live, peak, r.growth(), left.Round(time.Second))
	}
	p.line(line)
}

// line writes a line, in place on a terminal.
func (p *progress) line(line string) {
	if p.columns == 0 {
		fmt.Fprintln(p.w, line)
		return
	}
	if len(line) >= p.columns {
		line = line[:p.columns-1]
	}
	fmt.Fprint(p.w, "\r", line, strings.Repeat(" ", max(p.written-len(line), 0)))
	p.written = len(line)
}

// end leaves the line that is rewritten.
func (p *progress) end() {
	if p.written > 0 {
		fmt.Fprintln(p.w)
		p.written = 0
	}
}
