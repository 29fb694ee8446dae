package memreport

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// numFields is the number of fields of a record.
const numFields = firstClass + 2*memory.NumClasses + 4

// firstClass is the index of the first field of classes.
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

// field is the value of a field: a whole number, the bits of a float64, or a word.
type field struct {
	known  bool // the record has it
	kind   fieldKind
	number int64
	word   string
}

type fieldKind uint8

const (
	integer fieldKind = iota
	fraction
	text
)

// fieldsOf returns the fields of a record.
func fieldsOf(r *memlog.Record) (list [numFields]field) {
	full, peaks := r.Schema > 0, peakKnown(r)
	list = [numFields]field{
		{known: full, number: r.Time}, {known: true, number: r.Step}, {known: true, number: int64(r.Rank)}, {known: true, number: int64(r.Microbatch)},
		{known: full, number: int64(r.Stage)}, {known: full, kind: text, word: r.Kind}, {known: true, number: r.Live}, {known: r.Planned, number: r.LivePlanned},
		{known: true, number: r.Peak}, {known: r.Planned, number: r.PeakPlanned},
		{known: true, number: r.Reserved},
		{known: full, number: r.Excess}, {known: full, number: r.Growth},
		{known: full, kind: fraction, number: int64(math.Float64bits(r.Weight))}, {known: full, number: r.WaitData},
	}
	classes := list[firstClass:]
	for class := range memory.NumClasses {
		classes[class] = field{known: full, number: r.Classes[class]}
		classes[memory.NumClasses+class] = field{known: peaks, number: r.PeakClasses[class]}
	}
	copy(list[firstClass+2*memory.NumClasses:], []field{
		{known: farKnown(r), number: r.Far}, {known: farKnown(r), number: r.FarPeak}, {known: r.FarPlanned > 0, number: r.FarPlanned},
		{known: r.Replicated, number: int64(r.Replica)},
	})
	return list
}

// peakKnown reports whether a record has its peak by class.
func peakKnown(r *memlog.Record) bool { return r.PeakClasses != memory.ByClass{} }

// farKnown reports whether a record has far memory.
func farKnown(r *memlog.Record) bool { return r.FarPeak > 0 || r.FarPlanned > 0 }

// value returns the field as a value that JSON can encode: a number that is not finite as text.
func (f *field) value() any {
	x := math.Float64frombits(uint64(f.number))
	switch {
	case f.kind == text:
		return f.word
	case f.kind == integer:
		return f.number
	case math.IsNaN(x) || math.IsInf(x, 0):
		return fmt.Sprint(x)
	}
	return x
}

// append appends the field to a line of CSV.
func (f *field) append(line []byte) []byte {
	switch {
	case !f.known:
		return line
	case f.kind == fraction:
		return strconv.AppendFloat(line, math.Float64frombits(uint64(f.number)), 'g', -1, 64)
	case f.kind == integer:
		return strconv.AppendInt(line, f.number, 10)
	case strings.ContainsAny(f.word, "\",\r\n"):
		return append(line, `"`+strings.ReplaceAll(f.word, `"`, `""`)+`"`...)
	}
	return append(line, f.word...)
}
