package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/schedule"
)

// Write writes a profile as JSON, with a schema number:
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
//	          "whole": {"events":["-0","-i0"],"taken":2},
//	          "slots": ["0","i0"]
//	        }
//	      ]
//	    }
//	  ]
//	}
//
// An event is a letter and a buffer: a allocates, + retains, - releases. A buffer is either the number of
// one of the profile's buffers, or a number preceded by i (an input), g (the gradient of an output) or p
// (an entry part). The outputs use the same names, and "" means none. The calls of a stage are forward,
// whole (B), input (I), weight (W), eval, gather, zero_grad, quantize and quantize_eval. In the last two,
// "forward" is the number of copies in the output that are for the forward. Slots lists the buffer that F
// saves in each slot. Empty fields are omitted. The error for an invalid profile wraps ErrProfile.
func Write(w io.Writer, t *Profile) error {
	if err := t.Validate(); err != nil {
		return err
	}
	file := profileFile{Schema: form.Schema, Parts: append([]string{}, t.Parts...)}
	for _, f := range t.StageInfo {
		own := stageInfoFile{Frozen: f.Frozen, Split: f.Split, Recomputes: f.Recomputes, Quantizes: f.Quantizes}
		for kind, to := range own.Reads.byKind() {
			*to = parts(f.Reads[kind])
		}
		file.Facts = append(file.Facts, own)
	}
	for _, params := range t.Params {
		file.Params = append(file.Params, append([]Param{}, params...))
	}
	for _, s := range t.Shapes {
		own := shapeFile{Name: s.Name, Stages: s.Stages}
		for _, e := range s.Entries {
			own.Entries = append(own.Entries, entryFile{parts(e.Parts), e.Buffers, e.Events, e.Out})
		}
		file.Shapes = append(file.Shapes, own)
	}
	if err := jsonfile.Write(w, file); err != nil {
		return fmt.Errorf("layout: %w", err)
	}
	return nil
}

// profileFile is the file form of a profile.
type profileFile struct {
	Schema int             `json:"schema"`
	Parts  []string        `json:"parts"`
	Facts  []stageInfoFile `json:"facts,omitempty"`
	Params [][]Param       `json:"params,omitempty"`
	Shapes []shapeFile     `json:"shapes"`
}

type stageInfoFile struct {
	Frozen     bool      `json:"frozen,omitempty"`
	Split      bool      `json:"split,omitempty"`
	Recomputes bool      `json:"recomputes,omitempty"`
	Quantizes  bool      `json:"quantizes,omitempty"`
	Reads      readsFile `json:"reads,omitzero"`
}

// readsFile holds the entry parts that each kind reads.
type readsFile struct {
	F parts `json:"F,omitempty"`
	B parts `json:"B,omitempty"`
	I parts `json:"I,omitempty"`
	W parts `json:"W,omitempty"`
}

func (r *readsFile) byKind() map[schedule.Kind]*parts {
	return map[schedule.Kind]*parts{schedule.F: &r.F, schedule.B: &r.B, schedule.I: &r.I, schedule.W: &r.W}
}

type shapeFile struct {
	Name    string         `json:"name"`
	Entries []entryFile    `json:"entries,omitempty"`
	Stages  []StageProfile `json:"stages"`
}

type entryFile struct {
	Parts   parts       `json:"parts,omitempty"`
	Buffers []Buffer    `json:"buffers,omitempty"`
	Events  []RefChange `json:"events,omitempty"`
	Out     []Ref       `json:"out,omitempty"`
}

// bits returns the members of a set.
func bits(set uint64) (list []int) {
	for i := range 64 {
		if set>>i&1 == 1 {
			list = append(list, i)
		}
	}
	return list
}

// parts is a set of entry parts, whose file form is the list of their numbers.
type parts uint64

// MarshalJSON writes the numbers.
func (p parts) MarshalJSON() ([]byte, error) { return json.Marshal(bits(uint64(p))) }

// UnmarshalJSON is the inverse of MarshalJSON.
func (p *parts) UnmarshalJSON(text []byte) error {
	var list []int
	err := json.Unmarshal(text, &list)
	for _, part := range list {
		if part < 0 || part >= schedule.MaxParts {
			err = strconv.ErrRange
			break
		}
		*p |= 1 << part
	}
	if err != nil {
		return &jsonfile.Error{Text: fmt.Sprintf("found %.40s, expected a list of entry parts, from 0 to %d", text, schedule.MaxParts-1)}
	}
	return nil
}

// The letters of operations and buffers, in the order of the constants.
const opLetters = "a+-"

var refLetters = [...]string{"", "", "i", "g", "p"}

// MarshalText writes an event in its file form: a0, +i0, -3.
func (e RefChange) MarshalText() ([]byte, error) {
	ref, err := e.Ref.MarshalText()
	return append([]byte{opLetters[e.Op]}, ref...), err
}

// UnmarshalText is the inverse of MarshalText.
func (e *RefChange) UnmarshalText(word []byte) error {
	op := -1
	if len(word) > 1 {
		op = strings.IndexByte(opLetters, word[0])
	}
	if op < 0 || e.Ref.UnmarshalText(word[1:]) != nil {
		return errors.New("expected an event: a, + or -, and a buffer, such as a0, +i0 or -3")
	}
	e.Op = Op(op)
	return nil
}

// MarshalText writes a reference in its file form: 0, i0, g0, p0, or nothing.
func (r Ref) MarshalText() ([]byte, error) {
	if r.Kind == None {
		return nil, nil
	}
	return strconv.AppendInt([]byte(refLetters[r.Kind]), int64(r.Index), 10), nil
}

// UnmarshalText is the inverse of MarshalText.
func (r *Ref) UnmarshalText(word []byte) error {
	*r = Ref{}
	if len(word) == 0 {
		return nil
	}
	kind, number := Own, string(word)
	if i := slices.Index(refLetters[In:], number[:1]); i >= 0 {
		kind, number = In+RefKind(i), number[1:]
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= maxIndex || strconv.Itoa(n) != number {
		return errors.New("expected a buffer, such as 0, i0, g0 or p0, or nothing")
	}
	*r = Ref{kind, n}
	return nil
}
