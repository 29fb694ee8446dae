package jsonfile

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// longLine is the maximum length, in bytes, of a value that Write keeps on one line within others.
const longLine = 160

// Write writes an object as encoding/json does, with a line for each of its fields and for each
// value in a list or an object of these. Values within them are on one line, except those longer
// than longLine that contain objects or lists.
func Write(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	lines(&b, text, 0)
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// lines writes a value that is nested at the given depth.
func lines(b *bytes.Buffer, text jsontext.Value, depth int) {
	if len(text) == 2 || text[0] != '{' && text[0] != '[' || depth > 1 && (len(text) <= longLine || !bytes.ContainsAny(text[1:], "{[")) {
		b.Write(text)
		return
	}
	d, separator, indent := NewDecoder(text), "", "\n"+strings.Repeat("  ", depth)
	next := func() jsontext.Value { // no value of encoding/json is invalid
		value, _ := d.ReadValue()
		return value
	}
	_, _ = d.ReadToken()
	for b.WriteByte(text[0]); d.PeekKind() != jsontext.Kind(text[len(text)-1]); separator = "," {
		b.WriteString(separator + indent + "  ")
		if text[0] == '{' {
			b.Write(next())
			b.WriteString(": ")
		}
		lines(b, next(), depth+1)
	}
	b.WriteString(indent)
	b.WriteByte(text[len(text)-1])
}
