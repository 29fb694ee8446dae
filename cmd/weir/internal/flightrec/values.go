package flightrec

import (
	"strconv"

	"github.com/weir-ml/weir/internal/formats/pickle"
)

// number returns the value of a number, or of a string that contains one, and -1 for any other
// value.
func (d *decoder) number(v pickle.Value) int64 {
	if v.Kind == pickle.Integer {
		return v.Bits
	}
	if n, err := strconv.ParseInt(d.word(v), 10, 64); err == nil {
		return n
	}
	return -1
}

// longestWord bounds the length of a word: a pickle can refer to a long list many times.
const longestWord = 4 << 10

// word returns the text of a string or a number. It joins the elements of nested lists, with one
// separator for each depth. Equal words share memory.
func (d *decoder) word(v pickle.Value, separators ...string) string {
	d.scratch = d.write(d.scratch[:0], v, separators)
	if known, found := d.words[string(d.scratch)]; found {
		return known
	}
	word := string(d.scratch)
	d.words[word] = word
	return word
}

// write appends the text of a value.
func (d *decoder) write(b []byte, v pickle.Value, separators []string) []byte {
	switch v.Kind {
	case pickle.Text:
		text := d.Text(v)
		return append(b, text[:min(len(text), longestWord)]...)
	case pickle.Integer:
		return strconv.AppendInt(b, v.Bits, 10)
	}
	if len(separators) == 0 {
		return b
	}
	for i, item := range d.Items(v) {
		if len(b) > longestWord {
			break
		}
		if i > 0 {
			b = append(b, separators[0]...)
		}
		b = d.write(b, item, separators[1:])
	}
	return b
}
