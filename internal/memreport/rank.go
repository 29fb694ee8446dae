package memreport

import (
	"slices"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/report"
)

// rankTotals accumulates the summary of one rank's records.
type rankTotals struct {
	totals            RankSummary // without growth, owners and classes
	minimal           int64       // number of records in the minimal form
	every             int         // n if the log contains only every n-th record
	highestMicrobatch int
	columns           columns

	maxGrowth   int64   // the largest growth of a record
	step        int64   // the last record's step
	inStep      int64   // number of records of this step
	maxInStep   int64   // the maximum of inStep over all steps
	stepLevel   int64   // level of the step's first record
	stepLowest  int64   // lowest level of the step
	firstLowest int64   // lowest level of the first step
	stepProfile profile // level relative to the step's first record, by position in the step
	excess      profile // excess by position in the steps from the first one with an excess
	blocks      blocks  // stepProfile, by blocks of steps
	lows        profile // lowest level of a completed step, by step

	grew          bool      // some record has an excess
	firstExcess   recordKey // of the first such record
	firstExcessIn int64     // its position in its step
	excessMost    int64
	lastGrew      int64                 // the number of the last record whose excess grew
	excessNext    int64                 // the number of positions of the step that excess has
	stepFirst     int                   // the microbatch of the step's first record
	stepExcess    int64                 // the excess before the step
	stepGrowth    int64                 // the change of the excess in the step
	left          int64                 // bytes that steps leaked and that were live when the next one began
	leaking       int64                 // the number of steps that ended after the first excess
	leaks         map[memory.Leak]int64 // bytes by the call that leaked them

	first, last               recordKey
	resident                  int64          // the fewest resident bytes; 0 if the log does not report them
	classes                   memory.ByClass // at the highest level
	peakClasses               memory.ByClass // at the peak; 0 if the log does not report them
	firstClasses, lastClasses memory.ByClass
}

// newRank returns the empty summary of the rank with the given first record. It does not add the
// record.
func newRank(record *memlog.Record) *rankTotals {
	var replica *int
	if record.Replicated {
		replica = new(record.Replica)
	}
	return &rankTotals{
		totals: RankSummary{
			Rank: record.Rank, Replica: replica, LevelFirst: record.Live, LevelLowest: record.Live,
			LevelHighest: -1, Peak: -1, // below every level
		},
		every: 1,
		first: recordKey{0, record.Step, record.Microbatch}, firstClasses: record.Classes, resident: record.Classes[memory.Resident],
	}
}

// microbatches returns the maximum number of microbatches in a step.
func (r *rankTotals) microbatches() int64 {
	if r.every > 1 {
		return int64(r.highestMicrobatch) + 1
	}
	return r.maxInStep
}

// add adds a record.
func (r *rankTotals) add(record *memlog.Record) {
	t := &r.totals
	if t.Steps == 0 || record.Step != r.step {
		if t.Steps > 0 {
			r.lows.add(t.Steps-1, maxCells, float64(r.stepLowest))
		}
		r.step, r.inStep = record.Step, 0
		r.beginExcess(record)
		r.stepLevel, r.stepLowest = record.Live, record.Live
		t.Steps++
	}
	r.last = recordKey{t.Records, record.Step, record.Microbatch}
	r.columns.add(record, r.last)
	above := float64(record.Live - r.stepLevel)
	r.stepProfile.add(r.inStep, maxStepCells, above)
	r.blocks.add(t.Steps-1, record.Step, r.inStep, above)
	r.stepLowest = min(r.stepLowest, record.Live)
	if t.Steps == 1 {
		r.firstLowest = r.stepLowest
	}
	r.addExcess(record)
	r.inStep++
	r.maxInStep = max(r.maxInStep, r.inStep)
	r.addLevels(record)
	t.Records++
	r.maxGrowth = max(r.maxGrowth, record.Growth)
}

// beginExcess begins a step. The step's excess continues that of earlier steps. In older logs it restarts at 0
// although the leaked bytes are live; the level of the first record has then risen by these bytes.
func (r *rankTotals) beginExcess(record *memlog.Record) {
	r.excessNext, r.stepFirst, r.stepExcess = 0, record.Microbatch, record.Excess-record.Growth
	if r.grew {
		r.leaking++
	}
	if r.stepExcess > 0 {
		r.left = r.stepExcess
	} else if r.stepGrowth > 0 && record.Live-r.stepLevel == r.stepGrowth {
		r.left += r.stepGrowth
	}
	r.stepGrowth = 0
}

// addExcess updates the growth that the books show. A thinned log lacks records whose excess is 0: their
// number follows from the numbers of microbatches.
func (r *rankTotals) addExcess(record *memlog.Record) {
	position := r.inStep
	if record.Every > 1 {
		apart := record.Microbatch - r.stepFirst
		position = min(max(r.excessNext, int64(max(apart, -apart))), r.excessNext+int64(record.Every))
	}
	excess := record.Excess - r.stepExcess
	if !r.grew && (record.Growth != 0 || record.Excess != 0) {
		r.grew, r.firstExcess, r.firstExcessIn, r.excessNext = true, r.last, position, 0
	}
	for r.grew && r.excessNext < position {
		r.excess.add(r.excessNext, maxCells, 0)
		r.excessNext++
	}
	if r.grew {
		r.excess.add(position, maxCells, float64(excess))
	}
	r.excessNext = position + 1
	r.excessMost, r.stepGrowth = max(r.excessMost, excess), r.stepGrowth+record.Growth
	if record.Growth > 0 {
		r.lastGrew = r.last.Record
		if _, known := r.leaks[record.Leak]; record.Leak.Call != "" && (known || len(r.leaks) < maxPeakOwners) {
			if r.leaks == nil {
				r.leaks = map[memory.Leak]int64{}
			}
			record.Leak.Name = shortened(record.Leak.Name)
			r.leaks[record.Leak] += record.Growth
		}
	}
}

// addLevels updates the extremes of the levels.
func (r *rankTotals) addLevels(record *memlog.Record) {
	t := &r.totals
	r.every, r.highestMicrobatch = max(r.every, record.Every), max(r.highestMicrobatch, record.Microbatch)
	r.lastClasses = record.Classes
	r.resident = min(r.resident, record.Classes[memory.Resident])
	t.LevelLast = record.Live
	t.LevelLowest = min(t.LevelLowest, record.Live)
	t.Reserved = max(t.Reserved, record.Reserved)
	if record.Live > t.LevelHighest {
		t.LevelHighest, r.classes = record.Live, record.Classes
	}
	if record.Peak > t.Peak {
		t.Peak, t.PeakAt, r.peakClasses = record.Peak, At{record.Step, record.Microbatch}, record.PeakClasses
	}
	t.FarPeak, t.FarPlanned = max(t.FarPeak, record.FarPeak), max(t.FarPlanned, record.FarPlanned)
	if record.Schema == 0 {
		r.minimal++
	}
	if record.Planned {
		over := record.Live - record.LivePlanned
		if t.Planned == nil {
			t.Planned = &Planned{Most: over, Least: over}
		}
		p := t.Planned
		p.Peak, p.Most, p.Least = max(p.Peak, record.PeakPlanned), max(p.Most, over), min(p.Least, over)
	}
}

// lowest returns the lowest level of every step, including the last.
func (r *rankTotals) lowest() []report.Bucket {
	all := r.lows
	all.list = slices.Clone(all.list)
	all.add(r.totals.Steps-1, maxCells, float64(r.stepLowest))
	return all.list
}
