package minimalloc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/memory/placement"
)

// maxLine is the maximum length of a line in bytes.
const maxLine = 1 << 20

// Read reads an instance. Its problem is valid. Offsets are not checked; placement.Check verifies whether
// they form a layout. Hints, which are for another solver's search, are ignored. A gap with a range of
// bytes (a-b@lo:hi) is rejected.
//
// Errors about the contents wrap ErrFormat and contain the location of the fault and the actual and
// expected text. Other errors are r's. If r has a Name method, as a file does, the location is
// file:line:column.
func Read(r io.Reader) (*Instance, error) { return read(r, MaxBuffers) }

func read(r io.Reader, limit int) (*Instance, error) {
	s := &reader{lines: bufio.NewScanner(r), limit: limit, room: math.MaxInt64, ids: map[string]int{}}
	if file, ok := r.(interface{ Name() string }); ok {
		s.name = file.Name()
	}
	s.lines.Buffer(nil, maxLine)
	s.header()
	for s.fault == nil && s.next() {
		s.row()
	}
	if s.fault != nil {
		return nil, s.fault
	}
	return &s.in, nil
}

// column is the meaning of a column of a file.
type column uint8

const (
	id column = iota
	lower
	upper
	end // upper, minus one unit of time
	size
	alignment
	gaps
	hint
	offset
)

// columns maps the names of columns.
var columns = map[string]column{
	"id": id, "buffer": id, "buffer_id": id,
	"lower": lower, "start": lower, "begin": lower,
	"upper": upper, "end": end,
	"size": size, "alignment": alignment, "gaps": gaps, "hint": hint, "offset": offset,
}

// reader reads an instance line by line. It keeps the first fault.
type reader struct {
	name    string
	lines   *bufio.Scanner
	number  int // number of the line, from 1
	bytes   int // up to the end of the line
	fields  []string
	columns []column
	last    int64          // 1 if ends are inclusive, otherwise 0
	pieces  int            // buffers and gaps
	limit   int            // of pieces
	room    int64          // what remains of the address range if all buffers are placed end to end
	ids     map[string]int // by name: its line
	in      Instance
	fault   error
}

// next advances to the next line that is not blank.
func (s *reader) next() bool {
	for s.lines.Scan() {
		s.number++
		if s.bytes += len(s.lines.Bytes()) + 1; s.bytes > MaxBytes {
			s.fields = nil
			s.fail(0, "found more than %d bytes, expected a smaller file", MaxBytes)
			return false
		}
		if line := s.lines.Text(); strings.TrimSpace(line) != "" {
			s.fields = strings.Split(line, ",")
			return true
		}
	}
	switch err := s.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		s.number++
		s.fail(0, "found a line of more than %d bytes, expected a shorter one", maxLine)
	case err != nil:
		file := s.file()
		if _, named := errors.AsType[*fs.PathError](err); named {
			file = ""
		} else if file != "" {
			file += " "
		}
		s.fault = fmt.Errorf("minimalloc: %s%w", file, err)
	}
	return false
}

// header reads the names of the columns.
func (s *reader) header() {
	if !s.next() {
		s.number++
		s.fail(0, "found the end of the file, expected the names of the columns: id,lower,upper,size")
		return
	}
	s.fields[0] = strings.TrimPrefix(s.fields[0], "\ufeff") // a byte order mark
	var have [offset + 1]bool
	for k, field := range s.fields {
		name := strings.TrimSpace(field)
		c, ok := columns[name]
		if !ok {
			s.fail(k, "found %s, expected a column: id, lower, upper, size, alignment, gaps, hint or offset", quote(name))
			return
		}
		s.columns = append(s.columns, c)
		if c == end {
			c, s.last = upper, 1
		}
		if have[c] {
			s.fail(k, "found %s, expected another column: the file has this one already", quote(name))
			return
		}
		have[c] = true
	}
	for c, name := range []string{id: "id", lower: "lower", upper: "upper", size: "size"} {
		if column(c) != end && !have[c] {
			s.fail(0, "found no column %s, expected id, lower, upper and size", name)
			return
		}
	}
	if have[offset] {
		s.in.Offsets = []int64{}
	}
}

// row reads one buffer.
func (s *reader) row() {
	if len(s.fields) != len(s.columns) {
		s.fail(min(len(s.fields), len(s.columns))-1, "found %d fields, expected %d, as the first line has", len(s.fields), len(s.columns))
		return
	}
	var b placement.Buffer
	var where [offset + 1]int // by column: its field
	for k, c := range s.columns {
		where[c] = k
		switch text := strings.TrimSpace(s.fields[k]); c {
		case id:
			if line, ok := s.ids[text]; ok {
				s.fail(k, "found %s, expected another name: the buffer of line %d has it", quote(text), line)
			}
			text = strings.Clone(text)
			s.ids[text] = s.number
			s.in.IDs = append(s.in.IDs, text)
		case lower:
			b.Lower = s.integer(k, text, math.MinInt64, math.MaxInt64, "a time")
		case upper:
			b.Upper = s.integer(k, text, math.MinInt64, math.MaxInt64, "a time")
		case end:
			b.Upper = s.integer(k, text, math.MinInt64, math.MaxInt64-1, "a time") + 1
			where[upper] = k
		case size:
			b.Size = s.integer(k, text, 1, math.MaxInt64, "a size")
		case alignment:
			b.Align = s.integer(k, text, 1, 1<<62, "an alignment")
			if b.Align&(b.Align-1) != 0 {
				s.fail(k, "found %d, expected a power of two", b.Align)
			}
		case hint:
			s.integer(k, text, math.MinInt64, math.MaxInt64, "a hint")
		case offset:
			s.in.Offsets = append(s.in.Offsets, s.integer(k, text, math.MinInt64, math.MaxInt64, "an offset"))
		}
	}
	if b.Lower >= b.Upper {
		s.fail(where[upper], "found %s, expected a time after %d, at which the buffer is born", quote(strings.TrimSpace(s.fields[where[upper]])), b.Lower)
	}
	for k, c := range s.columns {
		if c == gaps {
			s.gaps(k, &b)
		}
	}
	if b.Align > s.room-b.Size {
		s.fail(where[size], "found %d, expected less: all sizes and alignments up to here sum to more than %d", b.Size, int64(math.MaxInt64))
	}
	s.room -= b.Size + b.Align
	if s.pieces += 1 + len(b.Gaps); s.pieces > s.limit {
		s.fail(0, "found more than %d buffers and gaps, expected no more", s.limit)
	}
	s.in.Problem.Buffers = append(s.in.Problem.Buffers, b)
}

// gaps reads the gaps of a buffer whose lifetime is known.
func (s *reader) gaps(k int, b *placement.Buffer) {
	from := b.Lower
	for text := range strings.FieldsSeq(s.fields[k]) {
		if strings.Contains(text, "@") {
			s.fail(k, "found %s, expected a gap without a window of bytes, such as 3-7: only gaps of whole buffers are planned", quote(text))
			return
		}
		dash := 1 + strings.IndexByte(text[1:], '-') // skips the sign of the first time
		if dash == 0 {
			s.fail(k, "found %s, expected a gap such as 3-7", quote(text))
			return
		}
		g := placement.Gap{
			Lower: s.integer(k, text[:dash], math.MinInt64, math.MaxInt64, "a gap such as 3-7: a time"),
			Upper: s.integer(k, text[dash+1:], math.MinInt64, math.MaxInt64-s.last, "a gap such as 3-7: a time") + s.last,
		}
		switch {
		case s.fault != nil:
			return
		case g.Lower >= g.Upper:
			s.fail(k, "found %s, expected a gap that ends behind its beginning", quote(text))
		case g.Lower <= from:
			s.fail(k, "found %s, expected a gap after %d, at which the buffer is born or its last gap ends", quote(text), from)
		case g.Upper >= b.Upper:
			s.fail(k, "found %s, expected a gap before %d, at which the buffer ends", quote(text), b.Upper)
		}
		b.Gaps = append(b.Gaps, g)
		from = g.Upper
	}
}

// integer reads a number from a field.
func (s *reader) integer(k int, text string, least, most int64, what string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		s.fail(k, "found %s, expected %s, an integer from %d to %d", quote(text), what, least, most)
		return least
	}
	return n
}

// fail keeps the first fault, at a field of the line.
func (s *reader) fail(k int, format string, args ...any) {
	if s.fault != nil {
		return
	}
	at := 1
	for i := range min(k, len(s.fields)) {
		at += len(s.fields[i]) + 1
	}
	if k < len(s.fields) {
		at += len(s.fields[k]) - len(strings.TrimLeft(s.fields[k], " \t"))
	}
	s.fault = diagnostic.Errorf(ErrFormat, "%s%d:%d: %s", s.file(), s.number, at, fmt.Sprintf(format, args...))
}

func (s *reader) file() string {
	if s.name == "" {
		return ""
	}
	return s.name + ":"
}

// quote quotes and shortens a text.
func quote(text string) string {
	const enough = 40
	if len(text) > enough {
		text = text[:enough] + "..."
	}
	return strconv.Quote(text)
}
