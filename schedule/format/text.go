package format

import (
	"errors"
	"fmt"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// readPlanText reads the text form.
func (f *File) readPlanText(options Options) error {
	var offsets []uint32
	plan, err := schedule.ParseTextAt(strings.NewReader(f.text), func(offset int) { offsets = append(offsets, uint32(offset)) })
	if at, ok := errors.AsType[*diagnostic.Error](err); ok && at.Line > 0 {
		return &Error{Name: f.Name, Line: at.Line, Column: at.Column, Text: at.Err.Error()}
	}
	if err != nil {
		return fmt.Errorf("format: %s%w", options.prefix(), err)
	}
	f.Plan = plan
	for _, program := range plan.Programs {
		n := 0
		for range schedule.StaticActions(program) {
			n++
		}
		start := uint32(0)
		if n > 0 {
			start = offsets[0]
		}
		f.starts, f.offsets = append(f.starts, start), append(f.offsets, offsets[:n:n])
		offsets = offsets[n:]
	}
	return f.checkOptions(options)
}

// checkOptions returns an error if the plan differs from the options.
func (f *File) checkOptions(options Options) error {
	for _, number := range [...]struct {
		name          string
		got, expected int
	}{
		{"ranks", f.Plan.Placement.Ranks, options.Ranks},
		{"stages", f.Plan.Placement.Stages(), options.Stages},
		{"microbatches", f.Plan.Microbatches, options.Microbatches},
	} {
		if number.expected != 0 && number.got != number.expected {
			return f.fault(0, "found a plan of %d %s, expected %d, as in the options", number.got, number.name, number.expected)
		}
	}
	return nil
}
