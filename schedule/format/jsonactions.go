package format

import (
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/schedule"
)

// lifetimes returns the names of the lifetimes that an action of a kind can end, lowest drop bit first.
func lifetimes(kind schedule.Kind) *[numLifetimes]string {
	switch kind {
	case schedule.W:
		return &ofW
	case schedule.WaitOffload:
		return &ofWaitOffload
	}
	return &ofOthers
}

const numLifetimes = 10

var (
	ofOthers      = [numLifetimes]string{"entry", "input", "output", "gradient", "saved", "sent", "microbatch", "forward_weights", "backward_weights", "far"}
	ofW           = withSaved("carry")
	ofWaitOffload = withSaved("near")
)

func withSaved(name string) [numLifetimes]string {
	names := ofOthers
	names[4] = name
	return names
}

// unpaired returns an action that is joined with the next one, but not in a pair within one body, and whether there
// is such an action.
func unpaired(program []schedule.Segment) (last schedule.Action, found bool) {
	for i := range program {
		for _, inner := range program[i].Inside() {
			last = 0
			for _, a := range inner.Body {
				if last.Joined() && a.Joined() {
					return a, true
				}
				last = a
			}
			if last.Joined() {
				return last, true
			}
		}
	}
	return 0, false
}

// actions writes the actions of a body.
func (j *jsonWriter) actions(body []schedule.Action) {
	open := false // whether the previous action is joined with this one
	for i, a := range body {
		j.buf = j.buf[:0]
		if i > 0 {
			j.buf = append(j.buf, ", "...)
		}
		if a.Joined() {
			j.buf = append(j.buf, '[')
		}
		j.buf = append(append(append(j.buf, `["`...), a.Kind().String()...), `",`...)
		j.buf = append(strconv.AppendInt(j.buf, int64(a.Stage()), 10), ',')
		if a.Kind().OfStage() && a.Microbatch() == 0 {
			j.buf = append(j.buf, "null"...)
		} else {
			j.buf = strconv.AppendInt(j.buf, int64(a.Microbatch()), 10)
		}
		for bit, name := range lifetimes(a.Kind()) {
			if a.Drop()>>bit&1 == 1 {
				j.buf = append(append(append(j.buf, `,"`...), name...), '"')
			}
		}
		j.buf = append(j.buf, ']')
		if open {
			j.buf = append(j.buf, ']')
		}
		open = a.Joined()
		j.b.Write(j.buf)
	}
}

// anAction describes an action in errors.
const anAction = `an action such as ["F",2,0]`

// actions reads the actions of a body, and appends their offsets in the text to offsets. The decoder checks the whole
// list, so the rest of the function can rely on a valid value. Reading each token with the decoder would take several
// times as long.
func (r *jsonReader) actions(offsets []uint32) ([]schedule.Action, []uint32) {
	if kind := r.next(); kind == '"' && r.old && r.schema != jsonSchema {
		return r.oldActions(offsets)
	} else if kind != '[' {
		r.want("[", "a list of actions, [, as in schema 2")
		return nil, offsets
	}
	value, err := r.in.ReadValue()
	if err != nil {
		r.fault = jsonfile.Explain(r.in, r.text, content, err)
		return nil, offsets
	}
	body := make([]schedule.Action, 0, min(len(value)/16+1, schedule.MaxWritten))
	add := func(start int, a schedule.Action) {
		if r.count(start) {
			body, offsets = append(body, a), append(offsets, uint32(start))
		}
	}
	r.pos = r.start + 1
	for token := r.token(); token != "]"; token = r.token() {
		r.must(token, "[", anAction)
		start := r.start
		if token = r.token(); token != "[" {
			add(start, r.action(token))
			continue
		}
		start = r.start
		add(start, r.action(r.token()).WithJoin(true))
		r.must(r.token(), "[", "the second action of a joined pair, [")
		start = r.start
		add(start, r.action(r.token()))
		r.must(r.token(), "]", "the end of a joined pair, ]")
	}
	if len(body) == 0 {
		r.fail("found no actions, expected " + anAction)
	}
	return body, offsets
}

// action reads an action, from the token of its kind to the end of the list.
func (r *jsonReader) action(token string) schedule.Action {
	kind, known := schedule.ParseKind(unquoted(token))
	if !known {
		r.fail("found %.45s, expected a kind such as \"F\"", token)
	}
	stage := r.whole(r.token(), "a stage", 0, schedule.MaxStages-1)
	microbatch := 0
	if token = r.token(); token != "null" || !kind.OfStage() {
		microbatch = r.whole(token, "a microbatch", 0, schedule.MaxMicrobatches-1)
	}
	names, drop := lifetimes(kind), schedule.Drop(0)
	for token = r.token(); token != "]"; token = r.token() {
		bit := slices.Index(names[:], unquoted(token))
		if bit < 0 || drop>>bit&1 == 1 {
			r.fail("found %.45s, expected a lifetime that %v can end, each at most once: %s", token, kind, strings.Join(names[:], ", "))
			break
		}
		drop |= 1 << bit
	}
	return schedule.NewAction(kind, stage, microbatch).WithDrop(drop)
}

// token takes the next token of a valid list of actions. After a fault it returns the end of a list.
func (r *jsonReader) token() string {
	const separators = " \t\r\n,"
	if r.fault != nil {
		return "]"
	}
	text := r.f.text
	for strings.IndexByte(separators, text[r.pos]) >= 0 {
		r.pos++
	}
	r.start = r.pos
	switch r.pos++; text[r.start] {
	case '[', ']', '{', '}':
	case '"':
		for ; text[r.pos] != '"'; r.pos++ {
			if text[r.pos] == '\\' {
				r.pos++
			}
		}
		r.pos++
	default:
		for strings.IndexByte(separators+"]}", text[r.pos]) < 0 {
			r.pos++
		}
	}
	return text[r.start:r.pos]
}

// must records a fault if the last token is not the required one.
func (r *jsonReader) must(token, must, expected string) {
	if token != must {
		r.fail("found %.45s, expected %s", token, expected)
	}
}

// unquoted returns the text of a token that is a string, or "".
func unquoted(token string) string {
	if token[0] != '"' || strings.IndexByte(token, '\\') >= 0 {
		text, _ := jsontext.AppendUnquote(nil, token) // fails for a token that is not a string
		return string(text)
	}
	return token[1 : len(token)-1]
}

// count counts an action that is written at an offset. It records a fault if there are too many actions, and
// reports whether no fault has been recorded so far.
func (r *jsonReader) count(start int) bool {
	if r.f.written++; r.f.written > schedule.MaxWritten {
		r.start = start
		r.fail("found action %d of the file, expected at most %d: write repeated actions as segments", r.f.written, schedule.MaxWritten)
	}
	return r.fault == nil
}

// oldActions reads the actions of a body in schema 1: a string in the text form.
func (r *jsonReader) oldActions(offsets []uint32) (body []schedule.Action, _ []uint32) {
	text := r.word()
	start := r.start
	for word := range words(text, " ") {
		var a schedule.Action
		if err := a.UnmarshalText([]byte(word)); err != nil {
			r.fail("%s", diagnostic.Text(err, nil))
		}
		if !r.count(start) {
			return nil, offsets
		}
		body, offsets = append(body, a), append(offsets, uint32(start))
	}
	if len(body) == 0 {
		r.fail("found %s, expected actions such as 2F0 or 1B3~gs", jsonfile.Quote(text))
	}
	return body, offsets
}
