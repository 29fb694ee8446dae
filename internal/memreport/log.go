package memreport

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// MaxRanks is the maximum number of ranks in a log. The summary of each takes up to 1 MB.
const MaxRanks = 1024

// ErrRanks is returned if a log has more than MaxRanks ranks.
var ErrRanks = errors.New("memreport: too many ranks")

// Log accumulates the summary of a memory log. The zero Log is empty and ready to use.
type Log struct {
	// Least is the minimum growth of a level per microbatch, in bytes: anything less is noise. It
	// does not apply to growth in the books.
	Least int64

	ranks   map[int]*rankTotals
	records int64
	minimal int64
	owners  owners
	peaks   map[int]*peakOwners // by rank
	roles   []FP8
}

// Add adds a record. The records of one rank must be in the order in which they were written;
// ranks may be mixed. The record is borrowed for the call.
func (l *Log) Add(record *memlog.Record) error {
	switch {
	case record.Owner != nil:
		l.owners.add(record.Owner)
		return nil
	case record.PeakOwner != nil:
		return l.peakOwner(record.PeakOwner)
	case record.FP8 != nil:
		l.addFP8(record.FP8)
		return nil
	}
	r := l.ranks[record.Rank]
	if r == nil {
		r = newRank(record)
		if err := addRank(&l.ranks, record.Rank, r); err != nil {
			return err
		}
	}
	r.add(record)
	if p := l.peaks[record.Rank]; p != nil {
		p.ended = true
	}
	l.records++
	if record.Schema == 0 {
		l.minimal++
	}
	return nil
}

// peakOwner adds an owner of memory at a rank's peak.
func (l *Log) peakOwner(o *memory.PeakOwner) error {
	p := l.peaks[o.Rank]
	if p == nil {
		p = &peakOwners{}
		if err := addRank(&l.peaks, o.Rank, p); err != nil {
			return err
		}
	}
	p.add(o)
	return nil
}

// addRank adds a rank to a map, or returns an error if there are too many.
func addRank[T any](ranks *map[int]T, rank int, kept T) error {
	if len(*ranks) == MaxRanks {
		return fmt.Errorf("%w: rank %d would exceed the limit of %d", ErrRanks, rank, MaxRanks)
	}
	if *ranks == nil {
		*ranks = map[int]T{}
	}
	(*ranks)[rank] = kept
	return nil
}

// Records returns the number of microbatch records.
func (l *Log) Records() int64 { return l.records }

// Growth returns the largest growth of a rank in a microbatch, in bytes, and the number of the rank's
// records. Both are 0 for a rank that is not in the log.
func (l *Log) Growth(rank int) (most, records int64) {
	r := l.ranks[rank]
	if r == nil {
		return 0, 0
	}
	return r.maxGrowth, r.totals.Records
}

// sorted returns the ranks by number.
func (l *Log) sorted() []*rankTotals {
	return slices.SortedFunc(maps.Values(l.ranks), func(a, b *rankTotals) int { return a.totals.Rank - b.totals.Rank })
}

// form returns the form of the log's lines.
func (l *Log) form() string {
	switch l.minimal {
	case 0:
		return "schema 1"
	case l.records:
		return "the minimal form"
	}
	return "schema 1 and the minimal form"
}
