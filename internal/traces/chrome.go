package traces

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-ml/weir/schedule"
)

// read reads all values of the file: one object or list of Chrome's events, or objects of
// OpenTelemetry one behind the other.
func (f *file) read() error {
	values := 0
	for {
		c, err := f.next()
		if errors.Is(err, io.EOF) && values > 0 {
			return nil
		}
		if err != nil {
			return f.ended(err)
		}
		switch c {
		case '{':
			err = f.top()
		case '[':
			err = f.list(maxEvent, f.event)
		default:
			return f.fault("found %q, expected an object, { or a list, [", c)
		}
		if err != nil {
			return err
		}
		values++
	}
}

// head has the fields at the top of a file of Kineto that describe its spans, and those of a span as
// Python's ConsoleSpanExporter prints it.
type head struct {
	Base int64 `json:"baseTimeNanoseconds"` // to add to all times
	Info struct {
		Rank  *int `json:"rank"` // nil if it does not say
		World int  `json:"world_size"`
	} `json:"distributedInfo"`
	Name       string                     `json:"name"`
	Start      *time.Time                 `json:"start_time"`
	End        time.Time                  `json:"end_time"`
	Attributes map[string]json.RawMessage `json:"attributes"`
	Resource   struct {
		Attributes map[string]json.RawMessage `json:"attributes"`
	} `json:"resource"`
}

// top reads an object at the top of the file.
func (f *file) top() error {
	fields := map[string]json.RawMessage{}
	err := f.object(func(name string) error {
		switch name {
		case "traceEvents":
			return f.list(maxEvent, f.event)
		case "resourceSpans":
			return f.list(maxResource, f.resource)
		case "distributedInfo", "baseTimeNanoseconds", "name", "start_time", "end_time", "attributes", "resource":
			text, err := f.value(maxField)
			fields[name] = bytes.Clone(text)
			return err
		}
		_, err := f.value(0)
		return err
	})
	if err != nil || len(fields) == 0 {
		return err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return f.fault("%v", err)
	}
	var h head
	if err := f.decode(text, &h); err != nil {
		return err
	}
	switch {
	case h.Base < 0 || h.Base > maxTime:
		return f.fault("baseTimeNanoseconds is %d: expected 0 to %d", h.Base, int64(maxTime))
	case h.Info.World < 0 || h.Info.World > maxRank:
		return f.fault("world_size is %d: expected 0 to %d", h.Info.World, maxRank)
	case h.Start != nil:
		return f.console(&h)
	}
	f.head = h
	return nil
}

// event is an event of Chrome's format, whose times are microseconds.
type event struct {
	Phase    string          `json:"ph"`
	Name     string          `json:"name"`
	Category string          `json:"cat"`
	Process  json.RawMessage `json:"pid"`
	Start    float64         `json:"ts"`
	Length   float64         `json:"dur"`
}

// event reads an event, if it is an action.
func (f *file) event(text []byte) error {
	if !mayBeAction(text) {
		return nil
	}
	var e event
	if json.Unmarshal(text, &e) != nil || e.Phase != "X" { // Other events may have fields of other types.
		return nil
	}
	spans := named(e.Name)
	start, end, ok := interval(1e3*e.Start, 1e3*e.Length)
	if len(spans) == 0 || !ok {
		return nil
	}
	for _, s := range spans {
		s.Start, s.End = start, end
		var err error
		switch e.Category {
		case "gpu_user_annotation":
			f.device, err = f.add(f.device, s)
		case "user_annotation", "cpu_op":
			f.host, err = f.add(f.host, s)
		default:
			rank, bad := strconv.Atoi(string(e.Process))
			if bad != nil || rank < 0 || rank > maxRank {
				return nil // Weir's processes are the ranks.
			}
			t := f.of(rank)
			t.Spans, err = f.add(t.Spans, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// of returns the trace of a rank in a file that holds several.
func (f *file) of(rank int) *Trace {
	t := f.ranks[rank]
	if t == nil {
		t = &Trace{Rank: rank}
		f.ranks[rank] = t
	}
	return t
}

// mayBeAction reports whether one of the names in an event is an action. Most events of
// torch.profiler are operators, and need not be decoded.
func mayBeAction(text []byte) bool {
	for {
		_, rest, found := bytes.Cut(text, []byte(`"name"`))
		if !found {
			return false
		}
		text = bytes.TrimLeft(rest, ": \t\r\n")
		if len(text) > 1 && text[0] == '"' {
			name, _, _ := bytes.Cut(text[1:min(len(text), 200)], []byte{'"'})
			if len(named(string(name))) > 0 {
				return true
			}
		}
	}
}

// named returns the actions that a name stands for, none if it is no action's.
func named(name string) []Span {
	name = strings.TrimPrefix(strings.TrimPrefix(name, "PP:"), ":")
	if name == "" || len(name) > 128 {
		return nil
	}
	if pair, joined := strings.CutSuffix(name, "OVERLAP_F_B"); joined {
		first, second, two := strings.Cut(strings.Trim(pair, "()"), ";")
		a, b := named(first), named(second)
		if !two || len(a) != 1 || len(b) != 1 {
			return nil
		}
		return append(a, b...)
	}
	if c := name[0]; c >= '0' && c <= '9' {
		a, err := schedule.ParseAction(name)
		if err != nil || !a.Kind().Compute() && !isTransfer(a.Kind()) {
			return nil
		}
		return []Span{{Kind: a.Kind(), Stage: a.Stage(), Microbatch: a.Microbatch()}}
	}
	if !strings.Contains(name, " ") {
		return nil
	}
	words := inWords.FindStringSubmatch(name)
	if words == nil {
		return nil
	}
	s := Span{Stage: -1}
	switch words[1] {
	case "Forward":
		s.Kind = schedule.F
	case "Backward":
		s.Kind = schedule.B
	default:
		s.Kind, _ = schedule.ParseKind(words[1])
	}
	var bad1, bad2 error
	if words[2] != "" {
		s.Stage, bad1 = strconv.Atoi(words[2])
	}
	s.Microbatch, bad2 = strconv.Atoi(words[3])
	if bad1 != nil || bad2 != nil || s.Stage >= schedule.MaxStages || s.Microbatch >= schedule.MaxMicrobatches || !s.Kind.Compute() && !isTransfer(s.Kind) {
		return nil
	}
	return []Span{s}
}

// inWords matches "Forward 7" and "F stage 2 mb 7".
var inWords = regexp.MustCompile(`^(\w+)(?: stage (\d+) (?:mb|microbatch))? (\d+)$`)

func isTransfer(k schedule.Kind) bool {
	return k == schedule.SendF || k == schedule.RecvF || k == schedule.SendB || k == schedule.RecvB
}
