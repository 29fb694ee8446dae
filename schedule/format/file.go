package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// MaxBytes is the most bytes that Read takes.
const MaxBytes = schedule.MaxText

// Options say how to read a file, and what some forms do not say. In the zero value
// everything is as the file shows it.
type Options struct {
	Name    string // of the file, for errors
	Format  Format
	Letters Letters // of a CSV file
	// Ranks, Stages and Microbatches are how many there must be; 0 is as many as
	// the file shows. A file that says itself must say the same; in others, actions
	// beyond are faults that check.Plan finds.
	Ranks, Stages, Microbatches int
	// Slices and Frozen are those of the plan, where the form has no word for them.
	Slices int
	Frozen []bool
}

// File is a plan and the file that it was read from. It is immutable.
type File struct {
	Name   string
	Format Format
	Plan   *schedule.Plan
	Costs  *simulate.Costs // of a JSON file that has them; nil in others
	// OldLetters is set where a CSV file was read in PyTorch's letters of 2024: a B of
	// the file is an I of the plan, or a BW a B. A plan of today that computes weight
	// gradients twice, with B and W and no I, looks the same: Options.Letters decides.
	OldLetters bool

	mark     string // the byte order mark before the text, or nothing
	text     string
	written  int  // actions that have been read
	inferred bool // the number of microbatches is that of the largest one in the text
	// offsets[rank] are the places in the text of the actions of the rank's bodies,
	// starts[rank] is that of the rank itself.
	offsets [][]uint32
	starts  []uint32
}

// Read reads a plan, at most MaxBytes of it, and holds no more memory than a small
// multiple of that. It does not say whether the plan is valid: check.Plan does.
// An error about a place in the file is an *Error; every error names the file.
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
	if f.Format == Auto {
		f.Format = Detect(f.text)
	}
	switch f.Format {
	case Text:
		err = f.readPlanText(options)
	case Compute, Comms:
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
	if f.Format == Compute || f.Format == Comms {
		f.Plan.Runtime = schedule.PyTorch
	}
	if f.Format == Comms && f.Plan.HasTransfers() {
		f.Plan.Capacity = schedule.Unlimited
	}
	return f, nil
}

// byteOrderMark is what spreadsheets begin a UTF-8 file with.
const byteOrderMark = "\ufeff"

// validate reports what is wrong with the options.
func (o *Options) validate() error {
	for _, number := range [...]struct {
		what     string
		n, limit int
	}{
		{"ranks", o.Ranks, schedule.MaxStages},
		{"stages", o.Stages, schedule.MaxStages},
		{"microbatches", o.Microbatches, schedule.MaxMicrobatches},
		{"slices", o.Slices, schedule.MaxMicrobatches},
	} {
		if number.n < 0 || number.n > number.limit {
			return fmt.Errorf("%w: %s%d %s were asked for: there may be up to %d, or 0 for what the file shows",
				ErrFormat, o.prefix(), number.n, number.what, number.limit)
		}
	}
	if o.Letters > OldLetters {
		return fmt.Errorf("%w: %sunknown letters, %d: give AutoLetters, TodaysLetters or OldLetters", ErrFormat, o.prefix(), o.Letters)
	}
	return nil
}

// prefix is what errors about the file as a whole have before their text.
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
		return "", fmt.Errorf("%w: %sit is longer than %d bytes: write the plan as segments, in the text form or as JSON", ErrFormat, prefix, MaxBytes)
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

// Place returns the line and the column of an action, by its position in the rank's
// program as faults give it, each repeat of a segment counted. Where there is no
// such action it returns the place of the rank, and where there is no such rank the
// first of the file. Columns count bytes from 1; a byte order mark takes none.
func (f *File) Place(rank int, position int64) (line, column int) {
	if rank < 0 || rank >= len(f.starts) {
		return 1, 1
	}
	offset, before := f.starts[rank], 0
	for _, segment := range f.Plan.Programs[rank] {
		all, within := segment.Len()*int64(segment.Repeat), int64(-1)
		if position >= 0 && position < all {
			within = position % segment.Len()
		}
		for _, inner := range segment.Inside() {
			n := int64(len(inner.Body))
			if within >= 0 && within < n*int64(inner.Repeat) {
				offset = f.offsets[rank][before+int(within%n)]
			}
			within, before = within-n*int64(inner.Repeat), before+int(n)
		}
		position -= all
	}
	return f.place(int(offset))
}

// place turns an offset into a line and a column.
func (f *File) place(offset int) (line, column int) {
	before := f.text[:offset]
	return 1 + strings.Count(before, "\n"), offset - strings.LastIndexByte(before, '\n')
}

// fault returns the error for a place.
func (f *File) fault(offset int, format string, args ...any) error {
	line, column := f.place(offset)
	return &Error{Name: f.Name, Line: line, Column: column, Text: fmt.Sprintf(format, args...)}
}

// found says what is at a place: a word of it, quoted.
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

// quote quotes what was found, the beginning of it where it is long.
func quote(found string) string {
	const limit = 40
	if len(found) > limit {
		found = found[:limit] + "..."
	}
	return strconv.Quote(found)
}

// title is the name of a plan that its form does not name.
func (f *File) title() string {
	if f.Name == "" {
		return f.Format.String()
	}
	return filepath.Base(f.Name)
}
