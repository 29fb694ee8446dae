package memlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/weir-ml/weir/memory"
)

// ErrFormat is matched by an Error: a line does not belong to a memory log.
var ErrFormat = errors.New("memlog: not a line of a memory log")

// ErrTorn is matched, together with ErrFormat, if the last line has no line end and cannot be read: its
// writer is still running, or was stopped in the middle of the line.
var ErrTorn = errors.New("the last line is torn")

// Error is a line that does not belong to a memory log.
type Error struct {
	Line, Column int    // from 1; the column in bytes
	Text         string // the expected and the actual text
	Torn         bool   // the error matches ErrTorn
}

// Error returns the position and the text.
func (e *Error) Error() string {
	return fmt.Sprintf("%v: %d:%d: %s", ErrFormat, e.Line, e.Column, e.Text)
}

// Is reports whether target is ErrFormat, or ErrTorn for a torn line.
func (e *Error) Is(target error) bool { return target == ErrFormat || target == ErrTorn && e.Torn }

const (
	// maxLine is the maximum length of a line in bytes, without the line end.
	maxLine = 1 << 20
	// maxSkipped is the length of a line after which reading stops.
	maxSkipped = 256 << 20
)

// byteOrderMark is written by some editors at the beginning of a file.
var byteOrderMark = []byte("\ufeff")

// Record is one line of a memory log.
type Record struct {
	// Schema is 1, or 0 for the minimal form.
	Schema int
	// Sample is the content of the line. The minimal form sets only Step, Rank, Microbatch, Reserved,
	// Peak and, from its key allocated, Live. Planned reports whether the line contains live_planned and
	// peak_planned.
	memory.Sample
	// Every is n if the log contains every n-th record, or 0 if it contains all of them.
	Every int
	// Owner is the live buffer described by a line of a Dump; Sample is then empty. It is nil
	// for all other lines.
	Owner *memory.Info
	// PeakOwner is the content of a line of Log.PeakOwner; Sample is then empty. It is nil for
	// all other lines.
	PeakOwner *memory.PeakOwner
	// FP8 is the content of a line of Log.FP8; Sample is then empty. It is nil for all other
	// lines.
	FP8 *FP8
}

// Sampled reports whether the record describes a microbatch, and not an owner or a step.
func (r *Record) Sampled() bool { return r.Owner == nil && r.PeakOwner == nil && r.FP8 == nil }

// Read returns the records of a memory log, in order. It skips blank lines and a byte order
// mark. For a line that cannot be read it yields an *Error and an empty record; the loop may continue with
// the next line. If r fails, its error is the last element. The iterator consumes r, so it can be used
// only once.
func Read(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		lines := lineReader{r: bufio.NewReaderSize(r, 64<<10)}
		for {
			text, err := lines.next()
			switch {
			case err == io.EOF:
				return
			case errors.Is(err, ErrFormat):
				if !yield(Record{}, err) {
					return
				}
				continue
			case err != nil:
				yield(Record{}, fmt.Errorf("memlog: line %d: %w", lines.number, err))
				return
			}
			if lines.number == 1 {
				text = bytes.TrimPrefix(text, byteOrderMark)
			}
			if len(bytes.TrimSpace(text)) == 0 {
				continue
			}
			record, err := parse(text)
			if fault, ok := errors.AsType[*Error](err); ok {
				record, fault.Line = Record{}, lines.number
				if fault.Torn = lines.torn && fault.Column > len(text); fault.Torn {
					fault.Text += ": " + ErrTorn.Error()
				}
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// lineReader splits the input into lines. It holds one line at a time.
type lineReader struct {
	r      *bufio.Reader
	line   []byte
	number int  // number of the last line returned, from 1
	torn   bool // the last line returned has no end
	over   bool // nothing more is read
}

// next returns the next line without its line end, valid until the next call. A line longer than maxLine
// is skipped with an error, and after one longer than maxSkipped reading stops.
func (l *lineReader) next() ([]byte, error) {
	if l.over {
		return nil, io.EOF
	}
	l.line = l.line[:0]
	l.number++
	for long, bytes := false, 0; ; {
		part, err := l.r.ReadSlice('\n')
		if bytes += len(part); bytes > maxSkipped {
			l.over = true
			return nil, l.long("has more than %d bytes: what follows is not read", maxSkipped)
		}
		if err == nil {
			part = part[:len(part)-1]
		}
		if long = long || len(l.line)+len(part) > maxLine; !long {
			l.line = append(l.line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && (long || len(l.line) > 0):
			l.torn = true
		case err != nil:
			return nil, err
		}
		if long {
			return nil, l.long("may have %d bytes", maxLine)
		}
		return l.line, nil
	}
}

// long returns the error for a line that is too long.
func (l *lineReader) long(format string, bytes int) error {
	return &Error{Line: l.number, Column: maxLine + 1, Text: fmt.Sprintf("expected the end of the line, which "+format, bytes)}
}
