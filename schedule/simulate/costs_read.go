package simulate

import (
	"io"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/schedule"
)

// MaxCostsText is the maximum number of bytes that ReadCosts reads.
const MaxCostsText = 16 << 20

var costsForm = jsonfile.Form{Kind: ErrCosts, Package: "schedule", Content: "the costs", Schema: 1, Bytes: MaxCostsText, Values: schedule.MaxStages}

// ReadCosts reads the output of WriteCosts. All fields except schema and stages are optional. It
// reads at most MaxCostsText bytes and allocates at most a small multiple of the bytes read.
//
// Errors in the text wrap ErrCosts, and contain the location, the text found and the text expected.
// If r has a Name method, like a file, the location is file:line:column.
func ReadCosts(r io.Reader) (*Costs, error) {
	var file costsFile
	if err := costsForm.Read(r, &file, &file.Schema); err != nil {
		return nil, err
	}
	c := &file.Costs
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if len(c.Resident) == 0 {
		c.Resident = nil // not given for any rank
	}
	if len(c.Links) == 0 {
		c.Links = nil
	}
	return c, nil
}
