package layout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/schedule"
)

// schema is the version of the form in which a profile is written.
const schema = 1

// Write writes a profile as JSON, under a schema number:
//
//	{
//	  "schema": 1,
//	  "parts": ["tokens"],
//	  "facts": [{"split":true,"reads":{"F":[0],"B":[0]}}],
//	  "params": [[{"name":"weight","bytes":4096}]],
//	  "shapes": [
//	    {
//	      "name": "32 tokens",
//	      "entries": [
//	        {"parts":[0],"buffers":[{"bytes":128,"class":"entry"}],"events":["a0"],"out":["0"]}
//	      ],
//	      "stages": [
//	        {
//	          "stage": "block0",
//	          "buffers": [
//	            {"name":"qkv","bytes":18432,"class":"saved"}
//	          ],
//	          "forward": {"events":["a0","+i0"],"out":["0"]},
//	          "whole": {"events":["-0","-i0"],"taken":2}
//	        }
//	      ]
//	    }
//	  ]
//	}
//
// An event is a letter and what it is of: a allocates, + retains, - releases; a number
// is a buffer of the profile, i an input, g the gradient of an output, p an entry part.
// What is handed over is named in the same way, and "" is nothing. The calls of a stage
// are forward, whole (B), input (I), weight (W), eval, gather, reduce, quantize and
// quantize_eval; the last two say how many of the copies that they hand over are for the
// forward ("forward":4). What is empty is left out. A profile that is not valid is an error that wraps ErrProfile.
func Write(w io.Writer, t *Profile) error {
	if err := t.Validate(); err != nil {
		return err
	}
	out := &writer{}
	out.put("{\n  \"schema\": %d,\n  \"parts\": %s,\n", schema, out.json(append([]string{}, t.Parts...)))
	if len(t.Facts) > 0 {
		out.put("  \"facts\": [")
		for i, f := range t.Facts {
			out.next(i, "\n    ")
			out.facts(f)
		}
		out.put("\n  ],\n")
	}
	if len(t.Params) > 0 {
		out.put("  \"params\": [")
		for i, params := range t.Params {
			out.next(i, "\n    ")
			out.params(params)
		}
		out.put("\n  ],\n")
	}
	out.put("  \"shapes\": [")
	for i := range t.Shapes {
		out.next(i, "\n    ")
		out.shape(&t.Shapes[i])
	}
	out.put("\n  ]\n}\n")
	if _, err := w.Write(out.text.Bytes()); err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	return nil
}

// writer writes values one by one.
type writer struct{ text bytes.Buffer }

func (w *writer) put(format string, args ...any) { fmt.Fprintf(&w.text, format, args...) }

// next begins value i of a list.
func (w *writer) next(i int, space string) {
	if i > 0 {
		w.text.WriteByte(',')
	}
	w.text.WriteString(space)
}

// json returns a string, or strings, as JSON.
func (w *writer) json(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil { // strings have no error
		panic(err)
	}
	return text
}

func (w *writer) facts(f schedule.Facts) {
	var fields []string
	for _, flag := range []struct {
		name string
		set  bool
	}{{"frozen", f.Frozen}, {"split", f.Split}, {"recomputes", f.Recomputes}, {"quantizes", f.Quantizes}} {
		if flag.set {
			fields = append(fields, fmt.Sprintf("%q:true", flag.name))
		}
	}
	var reads []byte
	for kind, parts := range f.Reads {
		if parts != 0 {
			if reads != nil {
				reads = append(reads, ',')
			}
			reads = fmt.Appendf(reads, "%q:%s", schedule.Kind(kind), w.json(bits(parts)))
		}
	}
	if reads != nil {
		fields = append(fields, fmt.Sprintf("\"reads\":{%s}", reads))
	}
	w.put("{")
	for i, field := range fields {
		w.next(i, "")
		w.put("%s", field)
	}
	w.put("}")
}

// bits returns the numbers in a set.
func bits(set uint64) []int {
	list := []int{}
	for i := range 64 {
		if set>>i&1 == 1 {
			list = append(list, i)
		}
	}
	return list
}

func (w *writer) params(params []Param) {
	w.put("[")
	for i, p := range params {
		w.next(i, "")
		w.put("{\"name\":%s,\"bytes\":%d", w.json(p.Name), p.Bytes)
		if p.Frozen {
			w.put(",\"frozen\":true")
		}
		w.put("}")
	}
	w.put("]")
}

func (w *writer) shape(s *Shape) {
	w.put("{\n      \"name\": %s,\n      \"entries\": [", w.json(s.Name))
	for i := range s.Entries {
		e := &s.Entries[i]
		w.next(i, "\n        ")
		w.put("{\"parts\":%s,\"buffers\":[", w.json(bits(e.Parts)))
		for k, b := range e.Buffers {
			w.next(k, "")
			w.buffer(b)
		}
		w.put("],\"events\":%s,\"out\":%s}", w.events(e.Events), w.refs(e.Out))
	}
	w.put("\n      ],\n      \"stages\": [")
	for i := range s.Stages {
		w.next(i, "\n        ")
		w.stageProfile(&s.Stages[i])
	}
	w.put("\n      ]\n    }")
}

func (w *writer) stageProfile(t *StageProfile) {
	w.put("{\n          \"stage\": %s,\n          \"buffers\": [", w.json(t.Stage))
	for i, b := range t.Buffers {
		w.next(i, "\n            ")
		w.buffer(b)
	}
	w.put("\n          ]")
	for i, c := range t.calls() {
		if c == nil {
			continue
		}
		w.put(",\n          %q: {\"events\":%s", callNames[i], w.events(c.Events))
		if c.Taken > 0 {
			w.put(",\"taken\":%d", c.Taken)
		}
		if len(c.Out) > 0 {
			w.put(",\"out\":%s", w.refs(c.Out))
		}
		if c.Forward > 0 {
			w.put(",\"forward\":%d", c.Forward)
		}
		w.put("}")
	}
	w.put("\n        }")
}

// callNames are the names of the calls, in the order of StageProfile.calls.
var callNames = [...]string{"forward", "whole", "input", "weight", "eval", "gather", "reduce", "quantize", "quantize_eval"}

func (w *writer) buffer(b Buffer) {
	w.put("{")
	if b.Name != "" {
		w.put("\"name\":%s,", w.json(b.Name))
	}
	w.put("\"bytes\":%d,\"class\":%q", b.Bytes, b.Class)
	if b.AtMost {
		w.put(",\"at_most\":true")
	}
	w.put("}")
}

func (w *writer) events(events []Event) []byte {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = opLetters[e.Op:e.Op+1] + e.Ref.letters()
	}
	return w.json(list)
}

func (w *writer) refs(refs []Ref) []byte {
	list := make([]string, len(refs))
	for i, ref := range refs {
		list[i] = ref.letters()
	}
	return w.json(list)
}

// The letters of operations and of what they are of, in the order of the constants.
const opLetters = "a+-"

var refLetters = [...]string{"", "", "i", "g", "p"}

// letters writes a Ref.
func (r Ref) letters() string {
	if r.Kind == None {
		return ""
	}
	return refLetters[r.Kind] + strconv.Itoa(r.Index)
}

// parseRef reads what letters writes.
func parseRef(word string) (Ref, bool) {
	if word == "" {
		return Ref{}, true
	}
	kind := Own
	if i := slices.Index(refLetters[In:], word[:1]); i >= 0 {
		kind, word = In+RefKind(i), word[1:]
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n >= maxList || strconv.Itoa(n) != word {
		return Ref{}, false
	}
	return Ref{kind, n}, true
}
