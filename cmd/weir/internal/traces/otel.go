package traces

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/weir-ml/weir/schedule"
)

// attribute is an attribute in OTLP JSON.
type attribute struct {
	Key   string `json:"key"`
	Value struct {
		Int    json.Number `json:"intValue"`
		String string      `json:"stringValue"`
	} `json:"value"`
}

// resource reads a batch of spans in OTLP JSON.
func (f *file) resource(text []byte) error {
	var batch struct {
		Resource struct {
			Attributes []attribute `json:"attributes"`
		} `json:"resource"`
		Scopes []struct {
			Spans []struct {
				Name       string      `json:"name"`
				Start      json.Number `json:"startTimeUnixNano"`
				End        json.Number `json:"endTimeUnixNano"`
				Attributes []attribute `json:"attributes"`
			} `json:"spans"`
		} `json:"scopeSpans"`
	}
	if err := f.decode("resourceSpans", text, &batch); err != nil {
		return err
	}
	common := byKey(batch.Resource.Attributes)
	for _, scope := range batch.Scopes {
		for _, span := range scope.Spans {
			start, err1 := span.Start.Int64()
			end, err2 := span.End.Int64()
			if err1 != nil || err2 != nil {
				continue
			}
			own := byKey(span.Attributes)
			if err := f.megatron(span.Name, start, end, func(key string) string { return cmp.Or(own[key], common[key]) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func byKey(list []attribute) map[string]string {
	values := map[string]string{}
	for _, a := range list {
		values[a.Key] = a.Value.String + a.Value.Int.String()
	}
	return values
}

// consoleSpan is a span in the form of Python's ConsoleSpanExporter.
type consoleSpan struct {
	name       string
	start      *time.Time // nil if the object is not a span
	end        time.Time
	attributes map[string]json.RawMessage
	resource   struct {
		Attributes map[string]json.RawMessage `json:"attributes"`
	}
}

// console adds a span of Python's console exporter.
func (f *file) console(s *consoleSpan) error {
	return f.megatron(s.name, s.start.UnixNano(), s.end.UnixNano(), func(key string) string {
		return strings.Trim(cmp.Or(string(s.attributes[key]), string(s.resource.Attributes[key])), `"`)
	})
}

// megatron adds a span of Megatron-LM, if it is a computation of a microbatch. attribute returns the
// text of an attribute, or "". Spans of backwards have no microbatch; they are numbered in order.
func (f *file) megatron(name string, start, end int64, attribute func(key string) string) error {
	direction := slices.Index([]string{"megatron.microbatch.forward", "megatron.microbatch.backward"}, name)
	if direction < 0 || start < 0 || end < start || end > maxTime {
		return nil
	}
	number := func(names ...string) int {
		for _, name := range names {
			var n int
			if json.Unmarshal([]byte(attribute(name)), &n) == nil && n >= 0 && n <= maxRank {
				return n
			}
		}
		return -1
	}
	s := Span{
		Kind: [...]schedule.Kind{schedule.F, schedule.B}[direction], Stage: number("dl.pipeline_parallel.rank"),
		Microbatch: number("megatron.microbatch_id", "dl.microbatch_id"), Start: start, End: end,
	}
	rank := number("dl.rank", "rank", "dl.pipeline_parallel.rank")
	if s.Stage >= schedule.MaxStages {
		return f.fault("span %q is of stage %d: the limit is %d stages", name, s.Stage, schedule.MaxStages)
	}
	if rank < 0 {
		return f.fault("a span %q has no attribute dl.rank, which says its rank", name)
	}
	n := f.counts[rank]
	if s.Kind == schedule.F && s.Microbatch == 0 {
		n = [2]int{}
	}
	if s.Microbatch < 0 {
		s.Microbatch = n[direction]
	}
	n[direction]++
	f.counts[rank] = n
	t := f.of(rank)
	t.Host = cmp.Or(t.Host, attribute("host.name"))
	return f.add(&t.Spans, s)
}
