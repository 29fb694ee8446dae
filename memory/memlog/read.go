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

// ErrFormat is returned for a line that is not one of a memory log. It is
// wrapped with line:column, what was expected and what was found.
var ErrFormat = errors.New("memlog: not a line of a memory log")

// ErrTorn is returned, together with ErrFormat, for a last line that has no end and cannot be
// read: its writer is still at work, or was stopped in the middle of it.
var ErrTorn = errors.New("the last line is torn")

const (
	// maxLine is the longest line that is read, in bytes without its end.
	maxLine = 1 << 20
	// maxSkipped is the longest line behind which anything is read.
	maxSkipped = 256 << 20
)

// byteOrderMark begins what some editors write.
var byteOrderMark = []byte("\ufeff")

// Record is one line of a memory log.
type Record struct {
	// Schema is 1, or 0 for the minimal form.
	Schema int
	// Sample is what the line says. The minimal form has Step, Rank, Microbatch,
	// Reserved, Peak and, as Live, what it calls allocated. Planned says that the line
	// has live_planned and peak_planned.
	memory.Sample
	// Every is n where the log has one record of n; 0 where it has all.
	Every int
	// Owner is the live buffer of which a line of a Dump tells; Sample is empty
	// then. It is nil in all other lines.
	Owner *memory.Info
	// PeakOwner is what a line of Log.PeakOwner tells; Sample is empty then. It is nil in
	// all other lines.
	PeakOwner *memory.PeakOwner
	// FP8 is what a line of Log.FP8 tells; Sample is empty then. It is nil in all other
	// lines.
	FP8 *FP8
}

// Sampled reports whether the record is of a microbatch, and not of an owner or a step.
func (r *Record) Sampled() bool { return r.Owner == nil && r.PeakOwner == nil && r.FP8 == nil }

// Read returns the records of a memory log, in order. Blank lines are skipped, and so is a
// byte order mark. A
// line that cannot be read gives an error that wraps ErrFormat, and an empty
// record; the loop may go on to the next line. An error of r is the last
// element. The iterator reads r once, so it is for a single use.
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
			switch {
			case err == nil:
			case lines.torn && tooShort(err, text):
				record, err = Record{}, fmt.Errorf("%w: %d:%w: %w", ErrFormat, lines.number, err, ErrTorn)
			default:
				record, err = Record{}, fmt.Errorf("%w: %d:%w", ErrFormat, lines.number, err)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// tooShort reports whether what is wrong with a line is that it ends.
func tooShort(err error, text []byte) bool {
	place, ok := errors.AsType[*fault](err)
	return ok && place.column > len(text)
}

// lineReader cuts a reader into lines. It holds one line at a time.
type lineReader struct {
	r      *bufio.Reader
	line   []byte
	number int  // of the line returned last, from 1
	torn   bool // the line returned last has no end
	over   bool // nothing more is read
}

// next returns the next line without its end, valid until the next call. A line
// above maxLine is skipped and is an error, and one above maxSkipped is the last.
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
			return nil, fmt.Errorf("%w: %d:%d: expected the end of the line, which has more than %d bytes: what follows is not read", ErrFormat, l.number, maxLine+1, maxSkipped)
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
			return nil, fmt.Errorf("%w: %d:%d: expected the end of the line, which may have %d bytes", ErrFormat, l.number, maxLine+1, maxLine)
		}
		return l.line, nil
	}
}
