package schedule

import (
	"bufio"
	"fmt"
	"io"
	"math/bits"
	"strconv"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// textVersion is the number in the first line of the text form. ParseText refuses other numbers.
const textVersion = 1

// lineWidth is the column at which the text form breaks a long line.
const lineWidth = 100

// WriteText writes the plan in a readable form. ParseText returns the same plan if the plan is valid,
// except that a Frozen without frozen stages becomes nil, a Copies or Slices of 1 becomes 0, and the
// Capacity of a plan without transfers becomes 0.
//
//	weir plan 1
//	name "depth-first"
//	mode training
//	ranks 1
//	stages 2
//	microbatches 64
//	placement 0 0
//	frozen none
//
//	stage 0: window=1 facts=- reads=F:0 drops=F:0
//	stage 1: window=1 facts=- reads=F:1,2;B:1,2 drops=B:1,2
//
//	rank 0: entries=1
//	x 64 +1: 0F0~p 1F0~io 1B0~ps 0B0~gsr
//
// The microbatches line is followed by the numbers of copies of the model and of slices per sequence,
// if they are more than one; the runtime, if it is not Weir; and the capacity of links, if the plan has
// transfers and its capacity is not Unlimited. The placement line lists the rank of each stage. A plan
// with offloads, and any plan after the lifetime pass, has stage lines: the window, the window of sends in a plan
// for several ranks (outgoing), the slots of saved state that an OFFLOAD moves (away), the facts (frozen,
// split, recomputes, quantizes), and the entry parts that an action of each kind reads and drops. A segment
// consists of an x, its repeat, its stride, and its body. Letters after ~ are drops, and an & joins an
// action with the next one. The body of a loop of loops consists of segments in parentheses:
//
//	x 976 +1024: (
//	x 512 +1: 0F512 1B0
//	x 512 +1: 1F0 0B512
//	)
//
// Equal plans have equal texts.
//
// WriteText returns an error that wraps the error from w, or one that wraps ErrText if the plan has no text
// form: if it has a mode, runtime, kind or drop without a name, a capacity below Unlimited, tables of the
// wrong length, or a number of copies that does not divide the number of stages.
func (p *Plan) WriteText(w io.Writer) error {
	if fault := p.noText(); fault != "" {
		return diagnostic.Errorf(ErrText, "%s", fault)
	}
	t := &textWriter{w: bufio.NewWriter(w)}
	t.header(p)
	if p.StageInfo != nil || p.Parts != nil || p.StageWindows != nil || p.SendWindows != nil || p.OffloadSlots != nil {
		t.w.WriteByte('\n')
		for stage := range p.Placement.Stages() {
			t.stage(p, stage)
		}
	}
	for rank, program := range p.Programs {
		fmt.Fprintf(t.w, "\nrank %d:", rank)
		if p.EntryWindows != nil {
			fmt.Fprintf(t.w, " entries=%d", p.EntryWindows[rank])
		}
		t.w.WriteByte('\n')
		for _, segment := range program {
			t.segment(segment)
		}
	}
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	return nil
}

// noText returns the reason why the plan cannot be written, or "".
func (p *Plan) noText() string {
	if wrong := p.LengthMismatches(); len(wrong) > 0 {
		return fmt.Sprintf("%s has %d entries but the placement requires %d", wrong[0].Table, wrong[0].Len, wrong[0].Want)
	}
	if p.Mode > ForwardOnly {
		return "the plan has an unknown mode"
	}
	if int(p.Runtime) >= numRuntimes || p.Capacity < Unlimited {
		return fmt.Sprintf("it has %v and links of capacity %d: there are %v, and 0 or more, or %d", p.Runtime, p.Capacity, runtimeNames, Unlimited)
	}
	if c, stages := p.Placement.Copies, p.Placement.Stages(); c > 1 && stages%c != 0 {
		return fmt.Sprintf("%d copies do not share %d stages out evenly", c, stages)
	}
	for rank, program := range p.Programs {
		for a := range StaticActions(program) {
			if int(a.Kind()) >= NumKinds || a.Drop()&^KnownDrops != 0 {
				return fmt.Sprintf("%v on rank %d has a kind or a drop without a name", a, rank)
			}
		}
	}
	return ""
}

// textWriter writes pieces of the text form. bufio.Writer keeps the first error
// for Flush.
type textWriter struct {
	w   *bufio.Writer
	col int
	buf []byte
}

func (t *textWriter) header(p *Plan) {
	fmt.Fprintf(t.w, "weir plan %d\nname %q\nmode %v\nranks %d\nstages %d\nmicrobatches %d\n",
		textVersion, p.Name, p.Mode, p.Placement.Ranks, p.Placement.Stages(), p.Microbatches)
	if p.Placement.Copies > 1 {
		fmt.Fprintf(t.w, "copies %d\n", p.Placement.Copies)
	}
	if p.Slices > 1 {
		fmt.Fprintf(t.w, "slices %d\n", p.Slices)
	}
	if p.Runtime != Weir {
		fmt.Fprintf(t.w, "runtime %v\n", p.Runtime)
	}
	if p.Capacity != Unlimited && p.HasTransfers() {
		fmt.Fprintf(t.w, "capacity %d\n", p.Capacity)
	}
	t.word("placement")
	for _, rank := range p.Placement.Rank {
		t.buf = strconv.AppendInt(t.buf[:0], int64(rank), 10)
		t.word(string(t.buf))
	}
	t.line()
	t.word("frozen")
	none := true
	for stage, frozen := range p.Frozen {
		if frozen {
			none = false
			t.word(strconv.Itoa(stage))
		}
	}
	if none {
		t.word("none")
	}
	t.line()
}

func (t *textWriter) stage(p *Plan, stage int) {
	t.word("stage")
	t.word(strconv.Itoa(stage) + ":")
	if p.StageWindows != nil {
		t.word("window=" + strconv.Itoa(p.StageWindows[stage]))
	}
	if p.SendWindows != nil {
		t.word("outgoing=" + strconv.Itoa(p.SendWindows[stage]))
	}
	if p.OffloadSlots != nil {
		t.word("away=" + string(appendSet(nil, p.OffloadSlots[stage])))
	}
	if p.StageInfo != nil {
		f := &p.StageInfo[stage]
		words := ""
		for i, has := range [...]bool{f.Frozen, f.Split, f.Recomputes, f.Quantizes} {
			if has {
				words += "," + factWords[i]
			}
		}
		if words == "" {
			words = ",-"
		}
		t.word("facts=" + words[1:])
		t.word("reads=" + partsText(&f.Reads))
	}
	if p.Parts != nil {
		t.word("drops=" + partsText(&p.Parts[stage]))
	}
	t.line()
}

// factWords are the words for the booleans of StageInfo.
var factWords = [...]string{"frozen", "split", "recomputes", "quantizes"}

// partsText returns the text of sets of entry parts by kind, such as F:0,1;B:2.
func partsText(table *[NumKinds]uint64) string {
	var b []byte
	for kind, parts := range table {
		if parts == 0 {
			continue
		}
		if len(b) > 0 {
			b = append(b, ';')
		}
		b = append(b, Kind(kind).String()...)
		b = appendSet(append(b, ':'), parts)
	}
	if len(b) == 0 {
		return "-"
	}
	return string(b)
}

// appendSet appends the numbers in a set, such as 0,1, or - if the set is empty.
func appendSet(b []byte, set uint64) []byte {
	if set == 0 {
		return append(b, '-')
	}
	for ; set != 0; set &= set - 1 {
		b = append(strconv.AppendInt(b, int64(bits.TrailingZeros64(set)), 10), ',')
	}
	return b[:len(b)-1]
}

func (t *textWriter) segment(s Segment) {
	t.word("x")
	t.word(strconv.Itoa(s.Repeat))
	t.word(fmt.Sprintf("%+d:", s.Stride))
	if s.Inner != nil {
		t.word("(")
		t.line()
		for _, inner := range s.Inner {
			t.segment(inner)
		}
		t.word(")")
	}
	for _, a := range s.Body {
		t.buf = a.appendWord(t.buf[:0])
		t.word(string(t.buf))
	}
	t.line()
}

// word writes a word. The line may be broken before it.
func (t *textWriter) word(word string) {
	switch {
	case t.col == 0:
	case t.col+1+len(word) > lineWidth:
		t.w.WriteString("\n ")
		t.col = 1
		fallthrough
	default:
		t.w.WriteByte(' ')
		t.col++
	}
	t.w.WriteString(word)
	t.col += len(word)
}

func (t *textWriter) line() {
	t.w.WriteByte('\n')
	t.col = 0
}
