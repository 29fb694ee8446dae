package memrecords

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// numFields is the number of fields of a record.
const numFields = firstClass + 2*memory.NumClasses + 4

// firstClass is the index of the first field with the bytes of a class.
const firstClass = 15

// fieldNames are the names of the fields, in the order of a line of CSV.
var fieldNames = func() []string {
	names := []string{"time", "step", "rank", "microbatch", "stage", "action", "live", "live_planned", "peak", "peak_planned",
		"reserved", "excess", "growth", "weight", "wait_data"}
	for _, prefix := range []string{"", "peak_"} {
		for class := range memory.NumClasses {
			names = append(names, prefix+memory.Class(class).String())
		}
	}
	return append(names, "far", "far_peak", "far_planned", "replica")
}()

// fieldsOf returns the fields of a record, each an int64, a float64, a string, or nil if the record
// lacks it. A weight that is not finite is a string, as in JSON.
func fieldsOf(r *memlog.Record) (list [numFields]any) {
	given := func(has bool, value any) any {
		if !has {
			return nil
		}
		return value
	}
	full, peaks := r.Schema > 0, peakKnown(r)
	weight := any(r.Weight)
	if math.IsNaN(r.Weight) || math.IsInf(r.Weight, 0) {
		weight = fmt.Sprint(r.Weight)
	}
	list = [numFields]any{
		given(full, r.Time), r.Step, int64(r.Rank), int64(r.Microbatch), given(full, int64(r.Stage)), given(full, r.Kind),
		r.Live, given(r.Planned, r.LivePlanned), r.Peak, given(r.Planned, r.PeakPlanned),
		r.Reserved, given(full, r.Excess), given(full, r.Growth), given(full, weight), given(full, r.WaitData),
	}
	classes := list[firstClass:]
	for class := range memory.NumClasses {
		classes[class] = given(full, r.Classes[class])
		classes[memory.NumClasses+class] = given(peaks, r.PeakClasses[class])
	}
	copy(classes[2*memory.NumClasses:], []any{
		given(farKnown(r), r.Far), given(farKnown(r), r.FarPeak), given(r.FarPlanned > 0, r.FarPlanned), given(r.Replicated, int64(r.Replica)),
	})
	return list
}

// peakKnown reports whether a record breaks its peak down by class.
func peakKnown(r *memlog.Record) bool { return r.PeakClasses != memory.ByClass{} }

// farKnown reports whether a record includes far memory.
func farKnown(r *memlog.Record) bool { return r.FarPeak > 0 || r.FarPlanned > 0 }
