package format

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// The versions of the JSON form: the one that WriteJSON writes, and the one before it, in which the actions
// of a segment were a string in the text form.
const (
	jsonSchema = 2
	oldSchema  = 1
)

// WriteJSON writes a plan as JSON, with the costs of a simulation if they are not nil. If the plan is valid,
// Read returns the same plan and costs, except that a Frozen list without a frozen stage becomes nil, Copies
// and Slices of 1 become 0, and so does the Capacity of a plan without transfers. The same plan always yields
// the same bytes.
//
//	{
//	  "schema": 2,
//	  "name": "1f1b",
//	  "mode": "training",
//	  "ranks": 2,
//	  "placement": [0, 1],
//	  "microbatches": 8,
//	  "programs": [
//	    [
//	      {"repeat": 1, "stride": 0, "actions": [["F",0,0]]},
//	      {"repeat": 7, "stride": 1, "actions": [["F",0,1], ["B",0,0,"saved"]]},
//	      {"repeat": 1, "stride": 0, "actions": [["B",0,7,"saved"]]}
//	    ],
//	    [
//	      {"repeat": 8, "stride": 1, "actions": [["F",1,0], ["B",1,0,"saved"]]}
//	    ]
//	  ]
//	}
//
// The program of a rank is a list of segments. A segment runs its actions repeat times; each repeat adds
// stride to the microbatches of the previous one. A nested loop contains segments, a list of such objects,
// instead of actions.
//
// An action is a list of its kind, its stage, its microbatch, and the lifetimes that it ends. The
// microbatch is null if the action belongs to the stage alone, as UNSHARD does; such an action is the same
// in every repeat. Two actions that overlap are a list of both: [["F",0,7], ["B",7,3,"saved"]].
//
// The lifetimes, with their letters in the text form:
//
//	entry             p  the entry parts that "parts" lists for the stage and the kind
//	input             i  the stage's input
//	output            o  the stage's output, if nothing reads it
//	gradient          g  the gradient of the stage's output
//	saved             s  the state that the forward saved for this action
//	carry             s  at W: the state that the forward and I saved for it
//	near              s  at WAIT_OFFLOAD: the buffers whose copy to far memory is complete
//	sent              t  the buffer of the transfer that the action waits for
//	microbatch        r  the microbatch, at its last action on the rank
//	forward_weights   f  the copies of the stage's weights for forwards
//	backward_weights  b  the copies of the stage's weights for backwards
//	far               a  the copy of saved state in far memory
//
// The other fields of the plan come before the programs if they are not empty: copies, slices, a
// runtime other than weir, a bounded capacity of links, frozen stages; away, facts, parts, windows
// and outgoing, which have an element for each stage; entries, which has one for each rank; and
// costs. A plan without windows has not been through the lifetime pass, and its actions end nothing.
//
// An error comes from w, or wraps ErrRefused for a plan that JSON cannot express, or simulate.ErrCosts for
// invalid costs.
func WriteJSON(w io.Writer, plan *schedule.Plan, costs *simulate.Costs) error {
	if err := plan.WriteText(io.Discard); err != nil {
		return diagnostic.Errorf(ErrRefused, "%w", err)
	}
	if !utf8.ValidString(plan.Name) {
		return refuse(JSON, "the plan's name, %q, is not UTF-8", plan.Name)
	}
	for rank, program := range plan.Programs {
		if a, ok := unpaired(program); ok {
			return refuse(JSON, "%v on rank %d is in a joined group that is not a pair in one segment", a, rank)
		}
	}
	j := &jsonWriter{b: bufio.NewWriter(w)}
	j.b.WriteString("{")
	for _, f := range jsonFields {
		if value := f.value(plan); value != nil {
			j.field(f.name, value)
		}
	}
	if costs != nil {
		if err := j.costs(costs); err != nil {
			return err
		}
	}
	j.programs(plan)
	j.b.WriteString("\n}\n")
	if err := j.b.Flush(); err != nil {
		return fmt.Errorf("format: %w", err)
	}
	return nil
}

// jsonField is a field of the form. read reads its value into r.plan; value returns the value as JSON, or nil if
// the plan does not have the field.
type jsonField struct {
	name  string
	read  func(r *jsonReader)
	value func(p *schedule.Plan) []byte
}

// jsonFields lists the fields before the costs and the programs, in the order in which they are written.
var jsonFields = []jsonField{
	{"schema", (*jsonReader).readSchema, func(*schedule.Plan) []byte { return strconv.AppendInt(nil, jsonSchema, 10) }},
	{"name", func(r *jsonReader) { r.plan.Name = r.word() }, func(p *schedule.Plan) []byte { return quoted(p.Name) }},
	{"mode", (*jsonReader).mode, func(p *schedule.Plan) []byte { return quoted(p.Mode.String()) }},
	number("ranks", "a number of ranks", 1, schedule.MaxStages, func(p *schedule.Plan) *int { return &p.Placement.Ranks }),
	numbers("placement", "the rank of a stage", schedule.MaxStages-1, func(p *schedule.Plan) *[]int { return &p.Placement.Rank }),
	number("copies", "a number of copies", 2, schedule.MaxStages, func(p *schedule.Plan) *int { return &p.Placement.Copies }),
	number("microbatches", "a number of microbatches", 1, schedule.MaxMicrobatches, func(p *schedule.Plan) *int { return &p.Microbatches }),
	number("slices", "a number of slices", 2, schedule.MaxMicrobatches, func(p *schedule.Plan) *int { return &p.Slices }),
	{"runtime", (*jsonReader).runtime, func(p *schedule.Plan) []byte {
		if p.Runtime == schedule.Weir {
			return nil
		}
		return quoted(p.Runtime.String())
	}},
	{"capacity", func(r *jsonReader) { r.plan.Capacity = r.number("a number of messages", 0, schedule.MaxMicrobatches) }, func(p *schedule.Plan) []byte {
		if p.Capacity == schedule.Unlimited || !p.HasTransfers() {
			return nil
		}
		return strconv.AppendInt(nil, int64(p.Capacity), 10)
	}},
	{"frozen", func(r *jsonReader) { r.frozen = r.numbers("a stage", 0, schedule.MaxStages-1) }, func(p *schedule.Plan) []byte {
		var frozen []int
		for stage, f := range p.Frozen {
			if f {
				frozen = append(frozen, stage)
			}
		}
		if frozen == nil {
			return nil
		}
		return jsonNumbers(frozen)
	}},
	table("away", func(p *schedule.Plan) *[]uint64 { return &p.OffloadSlots }, func(r *jsonReader) uint64 { return r.set("a slot of saved state") }, jsonSet),
	table("facts", func(p *schedule.Plan) *[]schedule.StageInfo { return &p.StageInfo }, (*jsonReader).facts, jsonFacts),
	table("parts", func(p *schedule.Plan) *[][schedule.NumKinds]uint64 { return &p.Parts }, (*jsonReader).parts, jsonParts),
	numbers("windows", "a window", schedule.MaxMicrobatches, func(p *schedule.Plan) *[]int { return &p.StageWindows }),
	numbers("outgoing", "a window", schedule.MaxMicrobatches, func(p *schedule.Plan) *[]int { return &p.SendWindows }),
	numbers("entries", "a window", schedule.MaxMicrobatches, func(p *schedule.Plan) *[]int { return &p.EntryWindows }),
}

// number returns a field with a number from low to high. A plan with a lower number does not have this
// field.
func number(name, what string, low, high int, of func(p *schedule.Plan) *int) jsonField {
	return jsonField{name, func(r *jsonReader) { *of(r.plan) = r.number(what, low, high) }, func(p *schedule.Plan) []byte {
		if *of(p) < low {
			return nil
		}
		return strconv.AppendInt(nil, int64(*of(p)), 10)
	}}
}

// numbers returns a field with a list of numbers from 0 to high.
func numbers(name, what string, high int, of func(p *schedule.Plan) *[]int) jsonField {
	return jsonField{name, func(r *jsonReader) { *of(r.plan) = r.numbers(what, 0, high) }, func(p *schedule.Plan) []byte {
		if *of(p) == nil {
			return nil
		}
		return jsonNumbers(*of(p))
	}}
}

// table returns a field with a list of elements, written one per line.
func table[T any](name string, of func(p *schedule.Plan) *[]T, read func(r *jsonReader) T, element func(v T) []byte) jsonField {
	return jsonField{name, func(r *jsonReader) {
		list := []T{}
		r.list(schedule.MaxStages, func() { list = append(list, read(r)) })
		*of(r.plan) = list
	}, func(p *schedule.Plan) []byte {
		if *of(p) == nil {
			return nil
		}
		var b bytes.Buffer
		separator := "[\n    "
		for _, v := range *of(p) {
			b.WriteString(separator)
			b.Write(element(v))
			separator = ",\n    "
		}
		b.WriteString("\n  ]")
		return b.Bytes()
	}}
}

// jsonWriter writes the object of a plan, each field on a new line.
type jsonWriter struct {
	b         *bufio.Writer
	separator string
	buf       []byte
}

// field writes a field of the plan.
func (j *jsonWriter) field(name string, value []byte) {
	fmt.Fprintf(j.b, "%s\n  %q: %s", j.separator, name, value)
	j.separator = ","
}

// jsonNumbers returns a list of numbers as JSON.
func jsonNumbers(numbers []int) []byte {
	return []byte(strings.ReplaceAll(fmt.Sprint(numbers), " ", ", "))
}

// jsonFacts returns the facts of a stage as JSON.
func jsonFacts(f schedule.StageInfo) []byte {
	quantizes := ""
	if f.Quantizes {
		quantizes = `"quantizes": true, `
	}
	return fmt.Appendf(nil, `{"frozen": %t, "split": %t, "recomputes": %t, %s"reads": %s}`, f.Frozen, f.Split, f.Recomputes, quantizes, jsonParts(f.Reads))
}

// jsonParts returns sets of entry parts by kind as JSON: {"F": [0, 1], "B": [2]}.
func jsonParts(table [schedule.NumKinds]uint64) []byte {
	b := []byte("{")
	for kind, parts := range table {
		if parts == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ", "...)
		}
		b = append(fmt.Appendf(b, "%q: ", schedule.Kind(kind)), jsonSet(parts)...)
	}
	return append(b, '}')
}

// jsonSet returns the members of a set as a JSON list.
func jsonSet(set uint64) []byte {
	var members []int
	for ; set != 0; set &= set - 1 {
		members = append(members, bits.TrailingZeros64(set))
	}
	return jsonNumbers(members)
}

// programs writes the segments of every rank.
func (j *jsonWriter) programs(plan *schedule.Plan) {
	j.field("programs", []byte("["))
	for rank, program := range plan.Programs {
		if rank > 0 {
			j.b.WriteByte(',')
		}
		j.b.WriteString("\n    [")
		j.segments(program, "\n      ")
		j.b.WriteString("\n    ]")
	}
	j.b.WriteString("\n  ]")
}

// segments writes segments, each preceded by a line break and indentation.
func (j *jsonWriter) segments(program []schedule.Segment, indent string) {
	for i, segment := range program {
		if i > 0 {
			j.b.WriteByte(',')
		}
		fmt.Fprintf(j.b, "%s{\"repeat\": %d, \"stride\": %d, ", indent, segment.Repeat, segment.Stride)
		if segment.Inner != nil {
			j.b.WriteString(`"segments": [`)
			j.segments(segment.Inner, indent+"  ")
			j.b.WriteString(indent + "]}")
			continue
		}
		j.b.WriteString(`"actions": [`)
		j.actions(segment.Body)
		j.b.WriteString("]}")
	}
}

// quoted returns a string as JSON, without escaping < > &.
func quoted(s string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // encoding a string cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
