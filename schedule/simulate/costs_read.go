package simulate

import (
	"errors"
	"fmt"
	"io"

	"github.com/weir-ml/weir/internal/jsontext"
)

// MaxCostsText is the most bytes that ReadCosts reads.
const MaxCostsText = 16 << 20

// ReadCosts reads what WriteCosts writes. All fields may be left out but schema and
// stages. It reads at most MaxCostsText bytes and allocates no more than a small
// multiple of the bytes that it has read.
//
// Errors wrap ErrCosts and name the place, what was found there and what was expected. If r has a
// Name, as a file does, the place is file:line:column.
func ReadCosts(r io.Reader) (*Costs, error) {
	text, err := jsontext.New(r, MaxCostsText, "the costs")
	if errors.Is(err, jsontext.ErrLong) {
		return nil, fmt.Errorf("%w: the text is longer than %d bytes: name a file of costs", ErrCosts, MaxCostsText)
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
	c := &Costs{
		Unit: file.Unit, Scale: file.Scale, Latency: file.Latency, PerMiB: file.PerMiB, Microbatch: file.Microbatch,
		FarLatency: file.FarLatency, FarPerMiB: file.FarPerMiB,
		Links: file.Links, Resident: file.Resident, Stages: file.Stages,
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// costsFault is a fault at a place of a text.
type costsFault struct{ at jsontext.Fault }

func (f *costsFault) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrCosts, f.at.Place, f.at.Text)
}

func (f *costsFault) Unwrap() error { return ErrCosts }

// Place returns the place of the fault, for callers that read costs out of a larger text.
func (f *costsFault) Place() (line, column int) { return f.at.Line, f.at.Column }

// Fault returns what was found and what was expected.
func (f *costsFault) Fault() string { return f.at.Text }
