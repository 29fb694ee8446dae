package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// MaxBytes is the largest number of bytes that Read reads. They are enough for schedule.MaxWritten actions in JSON,
// with the lifetimes that the actions end.
const MaxBytes = 2 * schedule.MaxText

// Options control how Read reads a file, and state properties that some forms do not express. With the
// zero value, Read takes all information from the file.
type Options struct {
	Name    string  // of the file, for errors
	Format  Format  // Comms reads Comms26 as well
	Letters Letters // the letters used in a CSV file
	// Ranks, Stages and Microbatches are the expected numbers; 0 means to take the number from the file.
	// If the file states a number, it must equal the expected one. If it does not, actions beyond the
	// expected number are faults that check.Plan finds.
	Ranks, Stages, Microbatches int
	// Slices and Frozen set fields of the plan for forms that cannot express them.
	Slices int
	Frozen []bool
	// OldSchema accepts JSON files of the previous schema as well. Write always uses the current schema.
	OldSchema bool
}

// File is a plan and the file that it was read from. It is immutable.
type File struct {
	Name   string
	Format Format
	Plan   *schedule.Plan
	Costs  *simulate.Costs // from a JSON file with costs, otherwise nil
	// OldLetters is set if a CSV file was read with PyTorch's letters of 2024: a B in the file is an I in
	// the plan, and a BW is a B. A present-day file that computes weight gradients twice, with B and W
	// but no I, looks the same; Options.Letters selects the letters.
	OldLetters bool
	// Released is set if the plan has RESHARDs that the file lacks, as files of PyTorch 2.9 do.
	Released bool

	mark     string // the byte order mark before the text, or ""
	text     string
	written  int  // number of actions read
	inferred bool // the number of microbatches is the largest index in the text plus 1
	// offsets[rank] holds the offsets in the text of the actions in the rank's bodies, and
	// starts[rank] is the offset of the rank itself.
	offsets [][]uint32
	starts  []uint32
}

// Read reads a plan of at most MaxBytes. The memory that it uses is proportional to the text. Read
// does not check whether the plan is valid; check.Plan does. An error with a location in the file
// is an *Error. Every error contains the name of the file, if Options.Name is set.
func Read(r io.Reader, options Options) (*File, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	text, err := readText(r, options.prefix())
	if err != nil {
		return nil, err
	}
	f := &File{Name: options.Name, Format: options.Format, text: text}
	if rest, marked := strings.CutPrefix(text, byteOrderMark); marked {
		f.mark, f.text = byteOrderMark, rest
	}
	switch f.Format {
	case Auto:
		f.Format = Detect(f.text)
	case Comms:
		f.Format = commsOf(f.text)
	}
	switch f.Format {
	case Text:
		err = f.readPlanText(options)
	case Compute, Comms, Comms26:
		err = f.readCSV(options)
	case Order:
		err = f.readOrder(options)
	case JSON:
		err = f.readJSON(options)
	default:
		err = f.fault(0, "found %s, expected a plan: cells such as 2F0, signed numbers, {, or weir plan 1", f.found(0))
	}
	if err != nil {
		return nil, err
	}
	if f.Format == Compute || f.Format.communicates() {
		f.Plan.Runtime = schedule.PyTorch
	}
	if f.Format.communicates() && f.Plan.HasTransfers() {
		f.Plan.Capacity = schedule.Unlimited
	}
	return f, nil
}

// byteOrderMark begins UTF-8 files written by spreadsheets.
const byteOrderMark = "\ufeff"

// validate returns an error for invalid options.
func (o *Options) validate() error {
	for _, number := range [...]struct {
		name     string
		n, limit int
	}{
		{"ranks", o.Ranks, schedule.MaxStages},
		{"stages", o.Stages, schedule.MaxStages},
		{"microbatches", o.Microbatches, schedule.MaxMicrobatches},
		{"slices", o.Slices, schedule.MaxMicrobatches},
	} {
		if number.n < 0 || number.n > number.limit {
			return diagnostic.Errorf(ErrFormat, "%sthe options ask for %d %s: give 1 to %d, or 0 to take the number from the file",
				o.prefix(), number.n, number.name, number.limit)
		}
	}
	if o.Letters > OldLetters {
		return diagnostic.Errorf(ErrFormat, "%sunknown letters, %d: give AutoLetters, TodaysLetters or OldLetters", o.prefix(), o.Letters)
	}
	return nil
}

// prefix returns the beginning of errors about the file as a whole.
func (o *Options) prefix() string {
	if o.Name == "" {
		return ""
	}
	return o.Name + ": "
}

func readText(r io.Reader, prefix string) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxBytes+1))
	if err != nil {
		if _, named := errors.AsType[*fs.PathError](err); named {
			prefix = ""
		}
		return "", fmt.Errorf("format: %s%w", prefix, err)
	}
	if len(text) > MaxBytes {
		return "", diagnostic.Errorf(ErrFormat, "%sthe file is longer than %d bytes: write the plan as segments, in the text form or as JSON", prefix, MaxBytes)
	}
	return string(text), nil
}

// WriteTo writes the file as it was read, byte for byte.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, f.mark+f.text)
	if err != nil {
		return int64(n), fmt.Errorf("format: %w", err)
	}
	return int64(n), nil
}

// LineColumn returns the line and the column of the action at a position of a rank's program. As in a
// check.Fault, the position counts the actions of every repeat, from 0. If the action does not exist, LineColumn returns
// the location of the rank, or, if the rank does not exist either, the start of the file. Columns count
// bytes from 1, ignoring a byte order mark.
func (f *File) LineColumn(rank int, position int64) (line, column int) {
	if rank < 0 || rank >= len(f.starts) {
		return 1, 1
	}
	offset, before := f.starts[rank], 0
	for _, segment := range f.Plan.Programs[rank] {
		all, rest := segment.Len()*int64(segment.Repeat), int64(-1) // rest: the position within a repeat
		if position >= 0 && position < all {
			rest = position % segment.Len()
		}
		for _, inner := range segment.Inside() {
			n := int64(len(inner.Body))
			if rest >= 0 && rest < n*int64(inner.Repeat) {
				offset = f.offsets[rank][before+int(rest%n)]
			}
			rest, before = rest-n*int64(inner.Repeat), before+int(n)
		}
		position -= all
	}
	return f.place(int(offset))
}

// place converts an offset to a line and a column.
func (f *File) place(offset int) (line, column int) {
	before := f.text[:offset]
	return 1 + strings.Count(before, "\n"), offset - strings.LastIndexByte(before, '\n')
}

// fault returns an error with a location.
func (f *File) fault(offset int, format string, args ...any) error {
	line, column := f.place(offset)
	return &Error{Name: f.Name, Line: line, Column: column, Text: fmt.Sprintf(format, args...)}
}

// found returns the word at an offset, quoted, for an error.
func (f *File) found(offset int) string {
	word := f.text[offset:]
	if word == "" {
		return "the end of the file"
	}
	if end := strings.IndexAny(word, ", \t\r\n[]"); end >= 0 {
		word = word[:max(end, 1)]
	}
	return quote(word)
}

// quote quotes the text, or the beginning of a long one.
func quote(found string) string {
	const limit = 40
	if len(found) > limit {
		found = found[:limit] + "..."
	}
	return strconv.Quote(found)
}

// title returns a name for a plan read from a form without names: that of the file, or of the format.
func (f *File) title() string {
	if f.Name == "" {
		return f.Format.String()
	}
	return filepath.Base(f.Name)
}
