package memreport

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// fieldNames are the names of the fields of a record, in the order of a line of CSV.
var fieldNames = func() []string {
	names := []string{"time", "step", "rank", "microbatch", "stage", "action", "live", "live_planned", "peak", "peak_planned",
		"reserved", "excess", "growth", "weight", "wait_data"}
	for _, prefix := range []string{"", "peak_"} {
		for class := range memory.NumClasses {
			names = append(names, prefix+memory.Class(class).String())
		}
	}
	return names
}()

// fieldValues are the fields of a record: int64, float64, string, or nil for what the record
// does not say.
func fieldValues(r *memlog.Record) []any {
	full := r.Schema > 0
	where := func(known bool, value any) any {
		if known {
			return value
		}
		return nil
	}
	list := []any{
		where(full, r.Time), r.Step, int64(r.Rank), int64(r.Microbatch), where(full, int64(r.Stage)), where(full, r.Kind),
		r.Live, where(r.Planned, r.LivePlanned), r.Peak, where(r.Planned, r.PeakPlanned), r.Reserved,
		where(full, r.Excess), where(full, r.Growth), where(full, number(r.Weight)), where(full, r.WaitData),
	}
	for _, bytes := range r.Classes {
		list = append(list, where(full, bytes))
	}
	for _, bytes := range r.PeakClasses {
		list = append(list, where(peakKnown(r), bytes))
	}
	return list
}

// peakKnown reports whether a record says what its peak was by class.
func peakKnown(r *memlog.Record) bool { return r.PeakClasses != memory.ByClass{} }

// number returns a number as JSON can hold it: one that is not finite as text.
func number(x float64) any {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Sprint(x)
	}
	return x
}
