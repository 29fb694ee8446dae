package memreport

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// recordOf is a record of schema 1 with a level, all of it resident.
func recordOf(level int64, planned bool) *memlog.Record {
	r := &memlog.Record{Schema: 1}
	r.Live, r.Peak, r.Reserved = level, level, level
	r.Classes[memory.Resident] = level
	if planned {
		r.Planned, r.LivePlanned, r.PeakPlanned = true, 7, 7
	}
	return r
}
