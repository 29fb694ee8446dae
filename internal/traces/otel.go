package traces

import (
	"encoding/json"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// attribute is an attribute of OTLP's JSON.
type attribute struct {
	Key   string `json:"key"`
	Value struct {
		Int    json.Number `json:"intValue"`
		String string      `json:"stringValue"`
	} `json:"value"`
}

// resource reads a batch of spans in OTLP's JSON.
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
	if err := f.decode(text, &batch); err != nil {
		return err
	}
	for _, scope := range batch.Scopes {
		for _, span := range scope.Spans {
			start, err1 := span.Start.Int64()
			end, err2 := span.End.Int64()
			if err1 != nil || err2 != nil {
				continue
			}
			attributes := map[string]string{}
			for _, list := range [][]attribute{batch.Resource.Attributes, span.Attributes} {
				for _, a := range list {
					attributes[a.Key] = a.Value.String + a.Value.Int.String()
				}
			}
			if err := f.megatron(span.Name, start, end, attributes); err != nil {
				return err
			}
		}
	}
	return nil
}

// console adds a span as Python's ConsoleSpanExporter prints it.
func (f *file) console(h *head) error {
	attributes := map[string]string{}
	for _, list := range []map[string]any{h.Resource.Attributes, h.Attributes} {
		for key, value := range list {
			text, _ := json.Marshal(value) // It came from JSON.
			attributes[key] = strings.Trim(string(text), `"`)
		}
	}
	return f.megatron(h.Name, h.Start.UnixNano(), h.End.UnixNano(), attributes)
}

// counts are the computations of a rank since the last forward of microbatch 0. Megatron's
// backward says no microbatch, and they come in order.
type counts struct{ forwards, backwards int }

// megatron adds a span of Megatron-LM, if it is a computation of a microbatch.
func (f *file) megatron(name string, start, end int64, attributes map[string]string) error {
	kind, known := map[string]schedule.Kind{"megatron.microbatch.forward": schedule.F, "megatron.microbatch.backward": schedule.B}[name]
	if !known || start < 0 || end < start || end > maxTime {
		return nil
	}
	number := func(names ...string) int {
		for _, name := range names {
			var n int
			if json.Unmarshal([]byte(attributes[name]), &n) == nil && n >= 0 && n <= maxRank {
				return n
			}
		}
		return -1
	}
	s := Span{Kind: kind, Stage: number("dl.pipeline_parallel.rank"), Microbatch: number("megatron.microbatch_id", "dl.microbatch_id"), Start: start, End: end}
	rank := number("dl.rank", "rank", "dl.pipeline_parallel.rank")
	if s.Stage >= schedule.MaxStages {
		return f.fault("a span %q is of stage %d: there may be %d", name, s.Stage, schedule.MaxStages)
	}
	if rank < 0 {
		return f.fault("a span %q has no attribute dl.rank, which says its rank", name)
	}
	n := f.counts[rank]
	if n == nil {
		n = &counts{}
		f.counts[rank] = n
	}
	if kind == schedule.F && s.Microbatch == 0 {
		*n = counts{}
	}
	count := &n.forwards
	if kind == schedule.B {
		count = &n.backwards
	}
	if s.Microbatch < 0 {
		s.Microbatch = *count
	}
	*count++
	t := f.of(rank)
	if t.Host == "" {
		t.Host = attributes["host.name"]
	}
	var err error
	t.Spans, err = f.add(t.Spans, s)
	return err
}
