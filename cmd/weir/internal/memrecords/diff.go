package memrecords

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory/memlog"
)

// maxWaiting is the maximum number of records that wait for their counterparts in the other log:
// logs with ranks in different orders are compared rank by rank.
const maxWaiting = 1 << 18

// ErrApart is returned if the order of records in two logs differs too much to compare them.
var ErrApart = errors.New("memrecords: the order of the ranks differs too much between the two logs")

// Diff finds the first difference between two logs, rank by rank. It ignores times, waits, and
// fields that are missing from one of the two records. The zero Diff is ready to use.
type Diff struct {
	ranks   map[int]*pairing
	waiting int
	logs    [2]memreport.Log
}

// pairing compares the records of one rank.
type pairing struct {
	queue    []memlog.Record // records of the log that is ahead, without counterparts so far
	ahead    int
	compared int64
	first    *Difference
}

// Difference is the first difference between two logs.
type Difference struct {
	Step       int64   `json:"step"`
	Rank       int     `json:"rank"`
	Microbatch int     `json:"microbatch"`
	Record     int64   `json:"record"` // number among the records of the rank, from 0
	Fields     []Field `json:"fields,omitempty"`
	// Ended is the log that ends before this record: "a" or "b".
	Ended string `json:"ended,omitempty"`
}

// Field is a field that differs.
type Field struct {
	Name string `json:"field"`
	A    any    `json:"a"`
	B    any    `json:"b"`
}

// Add adds a record of one of the logs, 0 or 1. The record is borrowed for the call.
func (d *Diff) Add(log int, record *memlog.Record) error {
	if err := d.logs[log].Add(record); err != nil || !record.Sampled() {
		return err
	}
	if d.ranks == nil {
		d.ranks = map[int]*pairing{}
	}
	p := d.ranks[record.Rank]
	if p == nil {
		p = &pairing{}
		d.ranks[record.Rank] = p
	}
	switch {
	case p.first != nil:
	case len(p.queue) == 0 || p.ahead == log:
		if d.waiting == maxWaiting {
			return fmt.Errorf("%w: more than %d records of one log have no counterpart in the other", ErrApart, maxWaiting)
		}
		d.waiting++
		p.ahead, p.queue = log, append(p.queue, *record)
	default:
		pair := [2]*memlog.Record{&p.queue[0], &p.queue[0]}
		pair[log] = record
		if fields := differences(pair[0], pair[1]); fields != nil {
			p.first = &Difference{Step: pair[0].Step, Rank: pair[0].Rank, Microbatch: pair[0].Microbatch, Record: p.compared, Fields: fields}
		}
		p.compared++
		p.queue = p.queue[1:]
		d.waiting--
		if p.first != nil {
			d.waiting -= len(p.queue)
			p.queue = nil
		}
	}
	return nil
}

// differences returns the fields that both records have and that differ, except time and wait_data.
func differences(a, b *memlog.Record) (list []Field) {
	of := fieldsOf(b)
	for i, value := range fieldsOf(a) {
		name := fieldNames[i]
		if value != nil && of[i] != nil && value != of[i] && name != "time" && name != "wait_data" { // times depend on the machine
			list = append(list, Field{name, value, of[i]})
		}
	}
	return list
}

// First returns the first difference, once all records have been added: the one with the fewest records of its
// rank before it, and among equals the one of the lowest rank. It returns nil if the logs are equal.
func (d *Diff) First() *Difference {
	var first *Difference
	for _, rank := range slices.Sorted(maps.Keys(d.ranks)) {
		p := d.ranks[rank]
		one := p.first
		if one == nil && len(p.queue) > 0 {
			next := &p.queue[0]
			one = &Difference{Step: next.Step, Rank: rank, Microbatch: next.Microbatch, Record: p.compared, Ended: [2]string{"b", "a"}[p.ahead]}
		}
		if one != nil && (first == nil || one.Record < first.Record) {
			first = one
		}
	}
	return first
}

// Log returns the records of one of the logs, 0 or 1, for a summary.
func (d *Diff) Log(log int) *memreport.Log { return &d.logs[log] }
