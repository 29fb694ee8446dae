package simulate

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/jsontext"
)

// MaxCostsText is the maximum number of bytes that ReadCosts reads.
const MaxCostsText = 16 << 20

// ReadCosts reads the output of WriteCosts. All fields except schema and stages are optional. It
// reads at most MaxCostsText bytes and allocates at most a small multiple of the bytes read.
//
// Errors in the text wrap ErrCosts, and contain the location, the text found and the text expected.
// If r has a Name method, like a file, the location is file:line:column.
func ReadCosts(r io.Reader) (*Costs, error) {
	text, err := jsontext.New(r, MaxCostsText, "the costs")
	if errors.Is(err, jsontext.ErrLong) {
		return nil, fmt.Errorf("%w: the text is longer than %d bytes: use a file of costs", ErrCosts, MaxCostsText)
	}
	if err != nil {
		return nil, fmt.Errorf("schedule: %w", err)
	}
	var file costsFile
	text.Into(&file)
	text.End(costsSchema, file.Schema != 0)
	if f := text.Fault(); f != nil {
		return nil, &costsFault{*f}
	}
	if err := file.Validate(); err != nil {
		return nil, err
	}
	return &file.Costs, nil
}

// costsFault is a fault at a location in a text.
type costsFault struct{ at jsontext.Fault }

func (f *costsFault) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrCosts, f.at.Place, f.at.Text)
}

func (f *costsFault) Unwrap() error { return ErrCosts }

// Place returns the location of the fault, for callers that read costs from a larger text.
func (f *costsFault) Place() (line, column int) { return f.at.Line, f.at.Column }

// Fault returns the message without the location.
func (f *costsFault) Fault() string { return f.at.Text }
