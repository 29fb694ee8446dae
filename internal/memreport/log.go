package memreport

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// MostRanks is how many ranks a log may have: each takes up to 1.2 MB here.
const MostRanks = 1024

// mostPositions is how many microbatches of a step are kept apart.
const mostPositions = 4096

// ErrRanks is returned for a record of one rank more than MostRanks.
var ErrRanks = errors.New("memreport: too many ranks")

// Log is what is kept of a memory log. The zero Log is empty and ready.
type Log struct {
	ranks   map[int]*rank
	records int64
	planned int64
	minimal int64
	owners  owners
	peaks   map[int]*peakOwners // by rank
	roles   []FP8
}

// Add adds a record. Those of one rank come in the order in which they were written;
// ranks may be mixed. The record is borrowed for the call.
func (l *Log) Add(record *memlog.Record) error {
	switch {
	case record.Owner != nil:
		l.owners.add(record.Owner)
		return nil
	case record.PeakOwner != nil:
		return l.peakOwner(record.PeakOwner)
	case record.FP8 != nil:
		l.precision(record.FP8)
		return nil
	}
	r := l.ranks[record.Rank]
	if r == nil {
		if len(l.ranks) == MostRanks {
			return fmt.Errorf("%w: rank %d comes after %d others", ErrRanks, record.Rank, MostRanks)
		}
		if l.ranks == nil {
			l.ranks = map[int]*rank{}
		}
		r = &rank{number: record.Rank, within: profile{most: mostPositions}}
		l.ranks[record.Rank] = r
	}
	r.add(record)
	if p := l.peaks[record.Rank]; p != nil {
		p.ended = true
	}
	l.records++
	if record.Schema == 0 {
		l.minimal++
	}
	if record.Planned {
		l.planned++
	}
	return nil
}

// peakOwner adds who has something at the peak of a rank.
func (l *Log) peakOwner(o *memory.PeakOwner) error {
	p := l.peaks[o.Rank]
	if p == nil {
		if len(l.peaks) == MostRanks {
			return fmt.Errorf("%w: rank %d comes after %d others", ErrRanks, o.Rank, MostRanks)
		}
		if l.peaks == nil {
			l.peaks = map[int]*peakOwners{}
		}
		p = &peakOwners{}
		l.peaks[o.Rank] = p
	}
	p.add(o)
	return nil
}

// Records returns how many there were of microbatches.
func (l *Log) Records() int64 { return l.records }

// sorted returns the ranks by number.
func (l *Log) sorted() []*rank {
	return slices.SortedFunc(maps.Values(l.ranks), func(a, b *rank) int { return a.number - b.number })
}

// form is what lines the log has.
func (l *Log) form() string {
	switch l.minimal {
	case 0:
		return "schema 1"
	case l.records:
		return "the minimal form"
	}
	return "schema 1 and the minimal form"
}

// Owner is live memory of one name and class.
type Owner struct {
	Name    string `json:"name"`
	Class   string `json:"class"`
	Bytes   int64  `json:"bytes"`
	Buffers int    `json:"buffers"`
}

const (
	mostOwners = 4096 // names that are kept apart
	mostName   = 200  // bytes of a name that are kept
	otherNames = "(other names)"
)

// owners are the live buffers that a dump tells of, by name and class.
type owners map[ownerKey]*Owner

type ownerKey struct {
	name  string
	class memory.Class
}

func (o *owners) add(info *memory.Info) {
	if *o == nil {
		*o = owners{}
	}
	name := info.Name
	if len(name) > mostName {
		name = strings.ToValidUTF8(name[:mostName], "") + "..."
	}
	key := ownerKey{name, info.Class}
	if (*o)[key] == nil {
		if len(*o) >= mostOwners {
			key.name = otherNames
		}
		if (*o)[key] == nil {
			(*o)[key] = &Owner{Name: strings.Clone(key.name), Class: info.Class.String()}
		}
	}
	(*o)[key].Bytes += info.Bytes
	(*o)[key].Buffers++
}

// sorted returns the owners, the largest first.
func (o owners) sorted() (list []Owner) {
	for _, one := range o {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b Owner) int {
		switch {
		case a.Bytes != b.Bytes:
			if a.Bytes > b.Bytes {
				return -1
			}
			return 1
		case a.Name != b.Name:
			return strings.Compare(a.Name, b.Name)
		}
		return strings.Compare(a.Class, b.Class)
	})
	return list
}
