package schedule

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// ParseText reads the text form that WriteText writes. Lines may be broken between any two words,
// and # begins a comment. ParseText reads at most MaxText bytes and allocates at most a small multiple
// of the bytes read. It does not check the plan; package check does.
//
// An error about a word of the text wraps ErrText and contains the location, the word found and the word
// expected. If r has a Name method, like a file, the location is file:line:column. An error with a location
// has the methods LineColumn() (line, column int) and Fault() string, which returns the rest of the message.
// The error for a text of more than MaxText bytes wraps ErrText and has no location. Other errors wrap the
// error from r.
func ParseText(r io.Reader) (*Plan, error) { return ParseTextAt(r, nil) }

// ParseTextAt is like ParseText, but also calls at for every action, in the order of the text, with the
// offset of the action's first byte. Callers can use the offsets to show where in the text a fault of
// the plan is.
func ParseTextAt(r io.Reader, at func(offset int)) (*Plan, error) {
	s, err := newScanner(r)
	if err != nil {
		return nil, err
	}
	s.at = at
	p := &Plan{}
	s.header(p)
	s.stages(p)
	s.ranks(p)
	if s.parseFault != nil {
		return nil, s.parseFault
	}
	if !p.HasTransfers() {
		p.Capacity = 0
	}
	return p, nil
}

func (s *scanner) header(p *Plan) {
	s.keyword("weir")
	s.keyword("plan")
	if s.word != strconv.Itoa(textVersion) {
		s.fail("expected %d, the version of the form: %s", textVersion, diagnostic.OtherVersion)
	}
	s.next()
	s.keyword("name")
	name, err := strconv.Unquote(s.word)
	if err != nil || !strings.HasPrefix(s.word, `"`) {
		s.fail("expected a name in double quotes")
	}
	p.Name = name
	s.next()
	s.keyword("mode")
	mode, known := ParseMode(s.word)
	if !known {
		s.fail("expected %v or %v", Training, ForwardOnly)
	}
	p.Mode = mode
	s.next()
	s.keyword("ranks")
	p.Placement.Ranks = s.number("a number of ranks", 1, MaxStages, "")
	s.keyword("stages")
	stages := s.number("a number of stages", 1, MaxStages, "")
	s.keyword("microbatches")
	p.Microbatches = s.number("a number of microbatches", 1, MaxMicrobatches, "")
	if s.word == "copies" {
		p.Placement.Copies = s.copies(stages)
	}
	if s.word == "slices" {
		s.next()
		p.Slices = s.number("a number of slices", 2, MaxMicrobatches, "")
	}
	p.Capacity = Unlimited
	if s.word == "runtime" {
		s.next()
		runtime, known := ParseRuntime(s.word)
		if !known {
			s.fail("expected one of %v", runtimeNames)
		}
		p.Runtime = runtime
		s.next()
	}
	if s.word == "capacity" {
		s.next()
		p.Capacity = s.number("a number of messages", 0, MaxMicrobatches, "")
	}
	s.keyword("placement")
	for range stages {
		if s.parseFault != nil {
			return
		}
		p.Placement.Rank = append(p.Placement.Rank, s.number("the rank of each stage,", 0, p.Placement.Ranks-1, ""))
	}
	s.frozen(p, stages)
}

// copies reads the number of copies of the model. Each copy has the same number of stages.
func (s *scanner) copies(stages int) int {
	s.next()
	if n, ok := parseNumber(s.word, stages); ok && n > 1 && stages%n != 0 {
		s.fail("expected a number of copies that divides the %d stages", stages)
	}
	return s.number("a number of copies", 2, stages, "")
}

func (s *scanner) frozen(p *Plan, stages int) {
	s.keyword("frozen")
	if s.word == "none" {
		s.next()
		return
	}
	for last := -1; last < 0 || last < stages-1 && s.word != "" && isDigit(s.word[0]); {
		last = s.number("none, or the frozen stages, ascending,", last+1, stages-1, "")
		if s.parseFault != nil {
			return
		}
		if p.Frozen == nil {
			p.Frozen = make([]bool, stages)
		}
		p.Frozen[last] = true
	}
}

// stages reads the stage lines, if there are any: one per stage, all with the same fields.
func (s *scanner) stages(p *Plan) {
	if s.word != "stage" {
		return
	}
	type field struct {
		key  string
		read func(stage int)
	}
	fields := []field{
		{"window=", func(int) { p.StageWindows = append(p.StageWindows, s.keyedNumber("window=")) }},
		{"outgoing=", func(int) { p.SendWindows = append(p.SendWindows, s.keyedNumber("outgoing=")) }},
		{"away=", func(int) { p.OffloadSlots = append(p.OffloadSlots, s.slots()) }},
		{"facts=", func(stage int) {
			p.StageInfo = append(p.StageInfo, StageInfo{})
			s.facts(&p.StageInfo[stage])
			s.parts("reads=", &p.StageInfo[stage].Reads)
		}},
		{"drops=", func(stage int) {
			p.Parts = append(p.Parts, [NumKinds]uint64{})
			s.parts("drops=", &p.Parts[stage])
		}},
	}
	for stage := range p.Placement.Rank {
		s.keyword("stage")
		s.number("the stages in order,", stage, stage, ":")
		fields = slices.DeleteFunc(fields, func(f field) bool {
			if stage == 0 && !strings.HasPrefix(s.word, f.key) {
				return true // no line has a field that the first line lacks
			}
			f.read(stage)
			return false
		})
		if len(fields) == 0 {
			s.fail("expected window=, outgoing=, away=, facts= or drops=")
		}
		if s.parseFault != nil {
			return
		}
	}
}

// value reads a word of the form key=value and returns the value.
func (s *scanner) value(key string) (string, bool) {
	value, ok := strings.CutPrefix(s.word, key)
	if !ok {
		s.fail("expected %s, as on the first of these lines", key)
	}
	return value, ok
}

func (s *scanner) keyedNumber(key string) int {
	value, ok := s.value(key)
	if !ok {
		return 0
	}
	n, ok := parseNumber(value, MaxMicrobatches)
	if !ok {
		s.fail("expected %s and a number up to %d", key, MaxMicrobatches)
	}
	s.next()
	return n
}

func (s *scanner) facts(f *StageInfo) {
	value, ok := s.value("facts=")
	if !ok {
		return
	}
	flags := [...]*bool{&f.Frozen, &f.Split, &f.Recomputes, &f.Quantizes}
	rest := value
	for i, flag := range flags {
		if word, more, _ := strings.Cut(rest, ","); word == factWords[i] {
			*flag, rest = true, more
		}
	}
	if value != "-" && (rest != "" || value == "" || strings.HasSuffix(value, ",")) {
		s.fail("expected facts=- or some of %s in this order", strings.Join(factWords[:], ","))
	}
	s.next()
}

// parts reads sets of entry parts by kind, such as key=F:0,1;B:2 or key=-.
func (s *scanner) parts(key string, table *[NumKinds]uint64) {
	value, ok := s.value(key)
	if !ok {
		return
	}
	for again := value != "-"; again; {
		var one string
		one, value, again = strings.Cut(value, ";")
		name, list, _ := strings.Cut(one, ":")
		kind, ok := ParseKind(name)
		if ok && table[kind] == 0 {
			table[kind], ok = parseSet(list)
		} else {
			ok = false
		}
		if !ok {
			s.fail("expected %s- or entry parts from 0 to %d by kind, such as %sF:0,1;B:2", key, MaxParts-1, key)
			return
		}
	}
	s.next()
}

// parseSet is the inverse of appendSet for nonempty sets.
func parseSet(list string) (set uint64, ok bool) {
	for _, word := range strings.Split(list, ",") {
		n, isNumber := parseNumber(word, MaxParts-1)
		if !isNumber || set>>n&1 == 1 {
			return set, false
		}
		set |= 1 << n
	}
	return set, true
}

// slots reads the slots of a stage that an OFFLOAD moves.
func (s *scanner) slots() uint64 {
	value, ok := s.value("away=")
	if !ok {
		return 0
	}
	set, ok := parseSet(value)
	if !ok && value != "-" {
		s.fail("expected away=- or slots of saved state from 0 to %d, such as away=0,2", MaxParts-1)
		return 0
	}
	s.next()
	return set
}

// ranks reads the program of every rank, up to the end of the text.
func (s *scanner) ranks(p *Plan) {
	entries := false
	for rank := range p.Placement.Ranks {
		s.keyword("rank")
		s.number("the ranks in order,", rank, rank, ":")
		if rank == 0 {
			entries = strings.HasPrefix(s.word, "entries=")
		}
		if entries {
			p.EntryWindows = append(p.EntryWindows, s.keyedNumber("entries="))
		}
		var program []Segment
		for s.word == "x" {
			program = append(program, s.segment(true))
		}
		if s.parseFault != nil {
			return
		}
		p.Programs = append(p.Programs, program)
	}
	if s.word != "" {
		s.fail("expected a segment, x, or the end of the text behind the last rank")
	}
}

// segment reads a segment. If nests is set, the segment may be a loop of loops.
func (s *scanner) segment(nests bool) Segment {
	s.keyword("x")
	segment := Segment{Repeat: s.number("a repeat", 1, MaxMicrobatches, "")}
	segment.Stride = s.stride()
	if nests && s.word == "(" {
		s.next()
		for s.word == "x" {
			inner := s.segment(false)
			segment.Inner = append(segment.Inner, inner)
			if s.nested += int64(len(inner.Body)) * int64(inner.Repeat); s.nested > MaxNested {
				s.fail("expected the loops of loops to have at most %d actions a repeat", MaxNested)
			}
		}
		if segment.Inner == nil {
			s.fail("expected the segments of a loop, such as x 4 +1: 0F0")
		}
		s.keyword(")")
		return segment
	}
	for s.word != "" && isDigit(s.word[0]) {
		segment.Body = append(segment.Body, s.action())
	}
	if len(segment.Body) == 0 {
		s.fail("expected the actions of the segment, such as 2F0 or 1B3~gs")
	}
	return segment
}

// stride reads a signed number and a colon.
func (s *scanner) stride() int {
	digits, ok := strings.CutSuffix(s.word, ":")
	n, number := 0, false
	if ok && len(digits) > 1 {
		n, number = parseNumber(digits[1:], MaxMicrobatches)
	}
	switch {
	case number && digits[0] == '+':
	case number && digits[0] == '-':
		n = -n
	default:
		s.fail("expected a stride with its sign, from -%d: to +%d:", MaxMicrobatches, MaxMicrobatches)
	}
	s.next()
	return n
}

// action reads an action with its drops and its join.
func (s *scanner) action() Action {
	a, fault := parseWord(s.word)
	if fault != "" {
		s.fail("%s", fault)
		return 0
	}
	if s.written++; s.written > MaxWritten {
		s.fail("expected at most %d actions: write those that repeat as segments", MaxWritten)
		return 0
	}
	if s.at != nil {
		s.at(s.start)
	}
	s.next()
	return a
}
