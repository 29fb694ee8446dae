package memreport

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// rank is the summary of one rank's records.
type rank struct {
	number            int
	records           int64
	minimal           int64 // records of the minimal form
	every             int   // the log has one record of this many
	highestMicrobatch int
	planned           int64 // records with a plan
	columns           columns

	step        int64 // the number of the last record's step
	steps       int64 // number of steps that have begun
	inStep      int64 // records of this step
	mostInStep  int64
	stepLevel   int64 // level of the step's first record
	stepLowest  int64
	firstLowest int64   // lowest level of the first step
	stepProfile profile // level relative to the step's first record, by position in the step
	excess      profile // excess by position, of the steps from the first one with an excess
	blocks      blocks  // stepProfile, by blocks of steps
	lows        profile // lowest level of a step, by step

	grew          bool  // some record has an excess
	firstExcess   place // of the first such record
	firstExcessIn int64 // its position in its step
	excessMost    int64
	lastGrew      int64 // the last record whose excess grew

	first, last, highest      place
	firstLevel                int64
	lastLevel                 int64
	lowestLevel               int64
	highestLevel              int64
	classes                   memory.ByClass // at the highest level
	firstClasses, lastClasses memory.ByClass
	peak, reserved            int64
	resident                  int64 // the minimum; 0 if the log does not have it
	peakAt                    place
	peakClasses               memory.ByClass // at the peak; 0 if the log does not have them
	peakPlanned               int64
	most, least               int64 // measured minus planned level
}

// microbatches returns the maximum number in a step.
func (r *rank) microbatches() int64 {
	if r.every > 1 {
		return int64(r.highestMicrobatch) + 1
	}
	return r.mostInStep
}

// add adds a record.
func (r *rank) add(record *memlog.Record) {
	if r.records == 0 || record.Step != r.step {
		r.endStep()
		r.step, r.inStep = record.Step, 0
		r.stepLevel, r.stepLowest = record.Live, record.Live
		r.steps++
	}
	at := place{r.records, record.Step, record.Microbatch}
	r.columns.add(record, at)
	r.stepProfile.add(r.inStep, float64(record.Live-r.stepLevel))
	r.blocks.add(r.steps-1, record.Step, r.inStep, float64(record.Live-r.stepLevel))
	r.stepLowest = min(r.stepLowest, record.Live)
	if r.steps == 1 {
		r.firstLowest = r.stepLowest
	}
	if !r.grew && (record.Growth != 0 || record.Excess != 0) {
		r.grew, r.firstExcess, r.firstExcessIn = true, at, r.inStep
		for position := range r.inStep { // there was no excess before it in this step
			r.excess.add(position, 0)
		}
	}
	if r.grew {
		r.excess.add(r.inStep, float64(record.Excess))
	}
	r.excessMost = max(r.excessMost, record.Excess)
	if record.Growth > 0 {
		r.lastGrew = r.records
	}
	r.inStep++
	r.mostInStep = max(r.mostInStep, r.inStep)
	r.levels(record, at)
	r.records++
}

// levels updates the highest and the lowest level.
func (r *rank) levels(record *memlog.Record, at place) {
	r.lastClasses = record.Classes
	r.resident = min(r.resident, record.Classes[memory.Resident])
	r.every, r.highestMicrobatch = max(r.every, record.Every, 1), max(r.highestMicrobatch, record.Microbatch)
	if r.records == 0 {
		r.firstClasses = record.Classes
		r.first, r.firstLevel, r.lowestLevel = at, record.Live, record.Live
		r.resident = record.Classes[memory.Resident]
	}
	if r.records == 0 || record.Live > r.highestLevel {
		r.highest, r.highestLevel, r.classes = at, record.Live, record.Classes
	}
	if r.records == 0 || record.Peak > r.peak {
		r.peak, r.peakAt, r.peakClasses = record.Peak, at, record.PeakClasses
	}
	r.last, r.lastLevel = at, record.Live
	r.lowestLevel = min(r.lowestLevel, record.Live)
	r.reserved = max(r.reserved, record.Reserved)
	if record.Schema == 0 {
		r.minimal++
	}
	if record.Planned {
		over := record.Live - record.LivePlanned
		if r.planned == 0 {
			r.most, r.least = over, over
		}
		r.most, r.least = max(r.most, over), min(r.least, over)
		r.peakPlanned = max(r.peakPlanned, record.PeakPlanned)
		r.planned++
	}
}

// endStep adds the lowest level of the completed step.
func (r *rank) endStep() {
	if r.steps > 0 {
		r.lows.add(r.steps-1, float64(r.stepLowest))
	}
}
