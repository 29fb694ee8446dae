package format

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// jsonSchema is the version of the JSON form. Readers refuse others.
const jsonSchema = 1

// WriteJSON writes a plan, and the costs of a simulation if they are not nil, as JSON. Read returns
// exactly this plan and these costs, except that a Frozen without a frozen stage becomes nil, and
// Copies and Slices of 1 become 0.
//
//	{
//	  "schema": 1,
//	  "name": "1f1b",
//	  "mode": "training",
//	  "ranks": 2,
//	  "placement": [0, 1],
//	  "microbatches": 8,
//	  "programs": [
//	    [
//	      {"repeat": 1, "stride": 0, "actions": "0F0"},
//	      {"repeat": 7, "stride": 1, "actions": "0F1 0B0"},
//	      {"repeat": 1, "stride": 0, "actions": "0B7"}
//	    ],
//	    [
//	      {"repeat": 8, "stride": 1, "actions": "1F0 1B0"}
//	    ]
//	  ]
//	}
//
// The other fields of the plan come after the microbatches if they are not empty: copies, slices, a
// runtime other than weir, a bounded capacity of links, frozen stages; away, facts, parts, windows
// and outgoing, which have an element for each stage; entries, which has one for each rank; and
// costs. Actions have the text form. A nested loop has segments, a list of such objects, in place of
// actions. The same plan gives the same bytes.
//
// The error is from w, or wraps ErrRefused for a plan that JSON cannot express.
func WriteJSON(w io.Writer, plan *schedule.Plan, costs *simulate.Costs) error {
	if err := plan.WriteText(io.Discard); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if !utf8.ValidString(plan.Name) {
		return refuse(JSON, "the plan's name, %q, is not UTF-8", plan.Name)
	}
	j := &jsonWriter{b: bufio.NewWriter(w)}
	j.b.WriteString("{")
	j.number("schema", jsonSchema)
	j.field("name", quoted(plan.Name))
	j.field("mode", quoted(plan.Mode.String()))
	j.number("ranks", plan.Placement.Ranks)
	j.numbers("placement", plan.Placement.Rank)
	if plan.Placement.Copies > 1 {
		j.number("copies", plan.Placement.Copies)
	}
	j.number("microbatches", plan.Microbatches)
	if plan.Slices > 1 {
		j.number("slices", plan.Slices)
	}
	if plan.Runtime != schedule.Weir {
		j.field("runtime", quoted(plan.Runtime.String()))
	}
	if plan.Capacity != schedule.Unlimited && plan.HasTransfers() {
		j.number("capacity", plan.Capacity)
	}
	var frozen []int
	for stage, f := range plan.Frozen {
		if f {
			frozen = append(frozen, stage)
		}
	}
	if frozen != nil {
		j.numbers("frozen", frozen)
	}
	j.tables(plan)
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

// jsonWriter writes one field per line.
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

func (j *jsonWriter) number(name string, n int) { j.field(name, strconv.AppendInt(nil, int64(n), 10)) }

func (j *jsonWriter) numbers(name string, numbers []int) {
	b := []byte("[")
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	j.field(name, append(b, ']'))
}

// tables writes the results of the lifetime pass that the plan has.
func (j *jsonWriter) tables(plan *schedule.Plan) {
	if plan.Away != nil {
		j.list("away", len(plan.Away), func(stage int) []byte { return jsonSet(plan.Away[stage]) })
	}
	if plan.Facts != nil {
		j.list("facts", len(plan.Facts), func(stage int) []byte { return jsonFacts(&plan.Facts[stage]) })
	}
	if plan.Parts != nil {
		j.list("parts", len(plan.Parts), func(stage int) []byte { return jsonParts(&plan.Parts[stage]) })
	}
	for _, table := range []struct {
		name    string
		numbers []int
	}{{"windows", plan.Windows}, {"outgoing", plan.Outgoing}, {"entries", plan.Entries}} {
		if table.numbers != nil {
			j.numbers(table.name, table.numbers)
		}
	}
}

// list writes a list with one element per line.
func (j *jsonWriter) list(name string, n int, element func(i int) []byte) {
	var b bytes.Buffer
	separator := "[\n    "
	for i := range n {
		b.WriteString(separator)
		b.Write(element(i))
		separator = ",\n    "
	}
	b.WriteString("\n  ]")
	j.field(name, b.Bytes())
}

// jsonFacts writes the facts of a stage.
func jsonFacts(f *schedule.Facts) []byte {
	quantizes := ""
	if f.Quantizes {
		quantizes = `"quantizes": true, `
	}
	return fmt.Appendf(nil, `{"frozen": %t, "split": %t, "recomputes": %t, %s"reads": %s}`, f.Frozen, f.Split, f.Recomputes, quantizes, jsonParts(&f.Reads))
}

// jsonParts writes sets of entry parts by kind: {"F": [0, 1], "B": [2]}.
func jsonParts(table *[schedule.NumKinds]uint64) []byte {
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

// jsonSet writes the members of a set.
func jsonSet(set uint64) []byte {
	b := []byte("[")
	for separator := ""; set != 0; set &= set - 1 {
		b = strconv.AppendInt(append(b, separator...), int64(bits.TrailingZeros64(set)), 10)
		separator = ", "
	}
	return append(b, ']')
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

// segments writes segments, each after a line break and its indentation.
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
		j.b.WriteString(`"actions": "`)
		for i, a := range segment.Body {
			if i > 0 {
				j.b.WriteByte(' ')
			}
			j.buf, _ = a.AppendText(j.buf[:0])
			j.b.Write(j.buf)
		}
		j.b.WriteString(`"}`)
	}
}

// quoted returns a string as JSON, without escapes for < > &.
func quoted(s string) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // encoding a string cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
