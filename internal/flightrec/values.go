package flightrec

import (
	"iter"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/pickle"
)

// pairs iterates over a dict whose keys are texts or numbers. Of anything else there are none.
func (d *decoder) pairs(v pickle.Value) iter.Seq2[string, pickle.Value] {
	return func(yield func(string, pickle.Value) bool) {
		if v.Kind != pickle.Dict {
			return
		}
		items := d.Items(v)
		for i := 0; i+1 < len(items); i += 2 {
			key := ""
			switch items[i].Kind {
			case pickle.Text:
				key = d.Text(items[i])
			case pickle.Integer:
				key = strconv.FormatInt(items[i].Bits, 10)
			default:
				continue
			}
			if !yield(key, items[i+1]) {
				return
			}
		}
	}
}

// list returns the items of a list or a tuple, and none of anything else.
func (d *decoder) list(v pickle.Value) []pickle.Value {
	if v.Kind != pickle.List && v.Kind != pickle.Tuple {
		return nil
	}
	return d.Items(v)
}

// number returns a number, or one that is written as a text; -1 is none.
func (d *decoder) number(v pickle.Value) int64 {
	switch v.Kind {
	case pickle.Integer:
		return v.Bits
	case pickle.Text:
		if n, err := strconv.ParseInt(d.Text(v), 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// word returns a text, of which equal ones share their memory.
func (d *decoder) word(v pickle.Value) string {
	switch v.Kind {
	case pickle.Text:
		return d.same(d.Text(v))
	case pickle.Integer:
		return d.same(strconv.FormatInt(v.Bits, 10))
	}
	return ""
}

func (d *decoder) same(text string) string {
	if known, found := d.words[text]; found {
		return known
	}
	text = strings.Clone(text)
	d.words[text] = text
	return text
}

// joined returns the texts of a list.
func (d *decoder) joined(v pickle.Value, by string) string {
	items := d.list(v)
	if len(items) == 1 {
		return d.word(items[0])
	}
	words := make([]string, 0, len(items))
	for _, item := range items {
		words = append(words, d.word(item))
	}
	return d.same(strings.Join(words, by))
}

// sizes returns a list of shapes: "4096x1x5120", or "2x3, 4" of two.
func (d *decoder) sizes(v pickle.Value) string {
	var text []byte
	for i, shape := range d.list(v) {
		if i > 0 {
			text = append(text, ", "...)
		}
		for j, size := range d.list(shape) {
			if j > 0 {
				text = append(text, 'x')
			}
			text = strconv.AppendInt(text, d.number(size), 10)
		}
	}
	if known, found := d.words[string(text)]; found {
		return known
	}
	return d.same(string(text))
}
