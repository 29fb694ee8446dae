package jsonfile

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Error is a position in a text, with what was found there and what was expected.
type Error struct {
	Offset int // in bytes
	Text   string
}

// Error returns the text.
func (f *Error) Error() string { return f.Text }

// found returns the fault for a text at an offset that differs from the expected text.
func found(offset int, text, format string, args ...any) *Error {
	return &Error{offset, "found " + text + ", expected " + fmt.Sprintf(format, args...)}
}

// Explain converts an error of a text's decoder, or of unmarshaling from the decoder, to a fault of the text.
// content names the text, such as "the costs".
func Explain(d *jsontext.Decoder, text []byte, content string, err error) *Error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		return unsuitable(text, semantic)
	}
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return found(len(text), "the end of the text", "more of %s", content)
	}
	offset := int(syntax.ByteOffset)
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return Repeated(offset, syntax.JSONPointer.LastToken())
	}
	kind, n := d.StackIndex(d.StackDepth())
	name := kind == '{' && n%2 == 0
	delimited := len(bytes.TrimRight(text[d.InputOffset():offset], space)) > 0
	if text[offset] == ',' && !delimited && n > 0 && (kind == '[' || name) { // The decoder stops at a comma that nothing follows.
		offset, delimited = len(text)-len(bytes.TrimLeft(text[offset+1:], space)), true
	}
	expected := "a value"
	switch {
	case offset > Next(d, text):
		expected = "the rest of a valid value"
	case d.StackDepth() == deepest:
		expected = "values that are less deep inside of others"
	case kind == '{' && !name && !delimited:
		expected = "a colon"
	case n > 0 && !delimited:
		expected = "a comma or " + string(kind+2) // '[' and '{' are two before their ends.
	case name:
		expected = "the name of a field, in quotes"
	}
	rest := text[offset:]
	if n := bytes.IndexAny(rest, separators+"]}"); n >= 0 {
		rest = rest[:max(n, 1)]
	}
	return found(offset, Quote(string(rest)), "%s", expected)
}

// Repeated returns the fault for a name that an object has twice.
func Repeated(offset int, name string) *Error {
	return &Error{offset, "found " + Quote(name) + ", which is there already: give it once"}
}

const (
	space      = " \t\r\n"
	separators = space + ",:"
	deepest    = 10000 // the decoder's limit
)

// Next returns the offset of the decoder's next token in its text.
func Next(d *jsontext.Decoder, text []byte) int {
	return len(text) - len(bytes.TrimLeft(text[d.InputOffset():], separators))
}

// unsuitable returns the fault for a valid value that does not suit its variable.
func unsuitable(text []byte, err *json.SemanticError) *Error {
	offset := int(err.ByteOffset)
	if fault, ok := errors.AsType[*Error](err); ok {
		return &Error{offset, fault.Text}
	}
	if errors.Is(err, json.ErrUnknownName) {
		return found(offset, "an unknown field "+Quote(err.JSONPointer.LastToken()), "%s", fields(err.GoType))
	}
	token, _ := NewDecoder(text[offset:]).ReadToken() // it was read before
	value := shorten(token.String())
	if token.Kind() == '"' {
		value = strconv.Quote(value)
	}
	if isText(err.GoType) && token.Kind() == '"' {
		return &Error{offset, fmt.Sprintf("found %s, %v", value, err.Err)} // an error of UnmarshalText
	}
	return found(offset, value, "%s", form(err.GoType))
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// form describes the JSON form of a Go type.
func form(t reflect.Type) string {
	if isText(t) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return form(t.Elem())
	case reflect.Struct, reflect.Map:
		return "an object, {"
	case reflect.Slice:
		return "a list, ["
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	}
	return "a whole number"
}

// fields lists the fields of a struct.
func fields(t reflect.Type) string {
	var list []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			list = append(list, name)
		}
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// Quote quotes the beginning of a text for an error.
func Quote(text string) string { return strconv.Quote(shorten(text)) }

// shorten returns the beginning of a long text.
func shorten(text string) string {
	const most = 40
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
