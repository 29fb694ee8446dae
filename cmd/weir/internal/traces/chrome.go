package traces

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// read reads all values of the file: an object or a list of Chrome events, or a sequence of
// OpenTelemetry objects.
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

// header holds the fields at the top of a Kineto file.
type header struct {
	base int64 // nanoseconds to add to all times
	job  struct {
		Rank  *int `json:"rank"` // nil if the file does not say
		World int  `json:"world_size"`
	}
}

// top reads an object at the top level of the file.
func (f *file) top() error {
	var span consoleSpan
	fields := map[string]any{
		"baseTimeNanoseconds": &f.header.base, "distributedInfo": &f.header.job,
		"name": &span.name, "start_time": &span.start, "end_time": &span.end, "attributes": &span.attributes, "resource": &span.resource,
	}
	err := f.object(func(name string) error {
		switch name {
		case "traceEvents":
			return f.list(maxEvent, f.event)
		case "resourceSpans":
			return f.list(maxResource, f.resource)
		}
		field, most := fields[name], 0
		if field != nil {
			most = maxField
		}
		text, err := f.value(most)
		if err != nil || text == nil {
			return err
		}
		return f.decode(name, text, field)
	})
	switch {
	case err != nil:
		return err
	case f.header.base < 0 || f.header.base > maxTime:
		return f.fault("baseTimeNanoseconds is %d: expected 0 to %d", f.header.base, int64(maxTime))
	case f.header.job.World < 0 || f.header.job.World > maxRank:
		return f.fault("world_size is %d: expected 0 to %d", f.header.job.World, maxRank)
	case span.start != nil:
		return f.console(&span)
	}
	return nil
}

// event is an event in Chrome's format.
type event struct {
	Phase    string          `json:"ph"`
	Name     string          `json:"name"`
	Category string          `json:"cat"`
	Process  json.RawMessage `json:"pid"`
	Thread   json.RawMessage `json:"tid"`
	Start    microseconds    `json:"ts"`
	Length   microseconds    `json:"dur"`
}

// microseconds is a time, or NaN if the text is not one. Ascend's profiler writes it as a string.
type microseconds float64

// UnmarshalJSON implements json.Unmarshaler. It succeeds for any text.
func (m *microseconds) UnmarshalJSON(text []byte) error {
	if text = bytes.Trim(text, `"`); string(text) == "null" || json.Unmarshal(text, (*float64)(m)) != nil {
		*m = microseconds(math.NaN())
	}
	return nil
}

// event reads an event: it adds an action, notes kernels and the streams that communicate, and ignores all others.
func (f *file) event(text []byte) error {
	kernel := bytes.HasPrefix(afterKey(text, `"cat"`), []byte(`"kernel"`))
	f.kernels = f.kernels || kernel || bytes.Contains(text, []byte(`"Task Type"`)) // a kernel in Ascend's traces
	collective := kernel && bytes.Contains(text, []byte("ccl"))                    // NVIDIA's ncclDevKernel_, AMD's rcclKernel
	if !collective && !mayBeAction(text) {
		return nil
	}
	e := event{Start: microseconds(math.NaN()), Length: microseconds(math.NaN())} // for an event without times
	err := json.Unmarshal(text, &e)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok { // Other events may have fields of other types.
		return f.fault("found %.40q in an event, which is not JSON", text[max(syntax.Offset-1, 0):])
	}
	spans, from, length := named(e.Name), 1e3*float64(e.Start), 1e3*float64(e.Length)
	stream := string(e.Process) + " " + string(e.Thread)
	switch {
	case e.Phase != "X":
		return nil
	case collective && communicates.MatchString(e.Name):
		f.transferring[stream] = true
		return nil
	case len(spans) == 0:
		return nil
	case !(math.Abs(from) < maxTime && length >= 0 && length < maxTime):
		return f.fault("%s has no valid ts and dur, which are numbers of microseconds", e.Name)
	}
	for _, s := range spans {
		s.Start = int64(math.Round(from))
		s.End = s.Start + int64(math.Round(length))
		switch e.Category {
		case "gpu_user_annotation":
			list := f.device[stream]
			err = f.add(&list, s)
			f.device[stream] = list
		case "user_annotation", "cpu_op":
			err = f.add(&f.host, s)
		default:
			rank, wrong := strconv.Atoi(string(e.Process))
			if wrong != nil || rank < 0 || rank > maxRank {
				return nil // Weir's processes are the ranks.
			}
			err = f.add(&f.of(rank).Spans, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// communicates matches the names of kernels that communicate.
var communicates = regexp.MustCompile(`^[nr]ccl`)

// afterKey returns an object's text from the value of the first field with the given key on, or nil if there is
// none. The key is in quotes.
func afterKey(text []byte, key string) []byte {
	_, rest, _ := bytes.Cut(text, []byte(key))
	return bytes.TrimLeft(rest, ": \t\r\n")
}

// mayBeAction reports whether one of the names in an event is the name of an action. Most of
// torch.profiler's events are operators, which need not be decoded.
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

// named returns the actions that a name denotes, or none if it is not the name of an action.
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
	staged := true
	if strings.Contains(name, " ") {
		words := inWords.FindStringSubmatch(name)
		if words == nil {
			return nil
		}
		kind := cmp.Or(map[string]string{"Forward": "F", "Backward": "B"}[words[1]], words[1])
		staged, name = words[2] != "", cmp.Or(words[2], "0")+kind+words[3]
	}
	if name[0] < '0' || name[0] > '9' { // This rejects most names without the cost of an error from ParseAction.
		return nil
	}
	a, err := schedule.ParseAction(name)
	if transfer := a.Kind() >= schedule.SendF && a.Kind() <= schedule.RecvB; err != nil || !transfer && !a.Kind().Compute() {
		return nil
	}
	s := Span{Kind: a.Kind(), Stage: a.Stage(), Microbatch: a.Microbatch()}
	if !staged {
		s.Stage = -1
	}
	return []Span{s}
}

// inWords matches "Forward 7" and "F stage 2 mb 7".
var inWords = regexp.MustCompile(`^([A-Z]\w*)(?: stage (\d+) (?:mb|microbatch))? (\d+)$`)
