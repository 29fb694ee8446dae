package format

import (
	"bytes"
	"errors"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/internal/formats/jsonfile"
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
	if r.next(); r.fault != nil {
		return
	}
	if err := r.in.SkipValue(); err != nil {
		r.fault = jsonfile.Explain(r.in, r.text, content, err)
		return
	}
	object := r.text[r.start:r.in.InputOffset()]
	costs, err := simulate.ReadCosts(bytes.NewReader(object))
	at, ok := errors.AsType[*diagnostic.Error](err)
	switch {
	case ok && at.Line > 0:
		r.start += offsetOf(object, at.Line, at.Column)
		r.fail("%v", at.Err)
	case err != nil:
		r.fail("found invalid costs: %v", err)
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
