package format

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/weir-ml/weir/schedule/simulate"
)

// costs writes the costs of a simulation in the format of simulate.WriteCosts.
func (j *jsonWriter) costs(costs *simulate.Costs) error {
	var b bytes.Buffer
	if err := simulate.WriteCosts(&b, costs); err != nil {
		return err
	}
	j.field("costs", bytes.ReplaceAll(bytes.TrimSpace(b.Bytes()), []byte("\n"), []byte("\n  ")))
	return nil
}

// costs reads the output of simulate.WriteCosts.
func (r *jsonReader) costs() {
	start := r.Ahead()
	object := r.Raw()
	costs, err := simulate.ReadCosts(bytes.NewReader(object))
	placed, isPlaced := errors.AsType[placedError](err)
	switch {
	case isPlaced:
		line, column := placed.Place()
		r.Wrong(start+offsetOf(object, line, column), placed.Fault())
	case err != nil:
		r.Wrong(start, fmt.Sprintf("found invalid costs: %v", err))
	}
	r.f.Costs = costs
}

// offsetOf is the inverse of File.place: it returns the offset of a line and a column of a
// text.
func offsetOf(text []byte, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		offset += 1 + bytes.IndexByte(text[offset:], '\n')
	}
	return offset + column - 1
}
