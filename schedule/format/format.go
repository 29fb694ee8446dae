package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Format is the form of a plan file.
type Format uint8

// The formats.
const (
	Auto    Format = iota // for reading: detected from the text
	Text                  // the text form of package schedule
	Compute               // PyTorch's CSV, compute-only
	Comms                 // PyTorch's CSV with communication, from PyTorch 2.15 on
	Comms26               // the same for PyTorch 2.6 to 2.14, which has no waits
	Order                 // the signed order list of Megatron and TransformerEngine
	JSON                  // Weir's own form, named plan

	numFormats = int(JSON) + 1
)

var formatNames = [numFormats]string{"auto", "text", "compute", "comms", "comms-2.6", "order", "plan"}

// String returns the name of the format.
func (f Format) String() string {
	if int(f) < numFormats {
		return formatNames[f]
	}
	return "format(?)"
}

// Parse returns the format with a name that String returns, or JSON for json. It returns false for an unknown
// name.
func Parse(name string) (Format, bool) {
	if name == "json" {
		return JSON, true
	}
	i := slices.Index(formatNames[:], name)
	return Format(max(i, 0)), i >= 0
}

var (
	// ErrFormat is wrapped by errors about a malformed file.
	ErrFormat = errors.New("format: invalid plan file")
	// ErrRefused is wrapped by errors about a plan that a form cannot express.
	ErrRefused = errors.New("format: the form cannot express the plan")
)

// Error is a fault in a file, with its location.
type Error struct {
	Name         string // name of the file, or ""
	Line, Column int    // from 1; the column in bytes
	Text         string // the text that was found and the text that was expected
}

// Error returns the location and the text, without a line break.
func (e *Error) Error() string {
	place := fmt.Sprintf("%s:%d:%d", e.Name, e.Line, e.Column)
	if e.Name == "" {
		place = fmt.Sprintf("line %d:%d", e.Line, e.Column)
	}
	return fmt.Sprintf("%v: %s: %s", ErrFormat, place, e.Text)
}

// Unwrap returns ErrFormat.
func (e *Error) Unwrap() error { return ErrFormat }

// Detect returns the form of a text, or Auto if the text resembles none of them. The text must not begin with
// a byte order mark, which Read removes first.
func Detect(text string) Format {
	for comment := true; comment; {
		text = strings.TrimLeft(text, " \t\r\n")
		if comment = strings.HasPrefix(text, "#"); comment {
			_, text, _ = strings.Cut(text, "\n")
		}
	}
	line, _, _ := strings.Cut(text, "\n")
	switch {
	case strings.HasPrefix(text, "weir"):
		return Text
	case strings.HasPrefix(text, "{"):
		return JSON
	case line != "" && strings.Trim(line, orderCharacters) == "":
		return Order
	case slices.ContainsFunc(commsWords, func(word string) bool { return strings.Contains(text, word) }):
		return commsOf(text)
	case isTable(text):
		return Compute
	case line != "" && strings.Trim(line[:1], "0123456789,(\"") == "":
		return Compute
	}
	return Auto
}

// commsWords lists words that occur in Comms but not in Compute.
var commsWords = []string{"SEND_", "RECV_", "UNSHARD", "RESHARD", "QUANTIZE"}

// commsOf returns the form of a text with communication: Comms26 if the text lacks the waits that Comms requires,
// and otherwise Comms.
func commsOf(text string) Format {
	starts := strings.Contains(text, "SEND_") || strings.Contains(text, "REDUCE_GRAD")
	if starts && !strings.Contains(text, "WAIT_") {
		return Comms26
	}
	return Comms
}
