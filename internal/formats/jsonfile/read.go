package jsonfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Form is a form of files, each of which is one object.
type Form struct {
	Kind    error  // of errors about a file
	Package string // precedes an error of the reader
	Content string // what errors call a file, such as "the costs"
	Form    string // the value of the field "form", or "" if the files have none
	Schema  int    // the value of the field "schema"
	Bytes   int64  // the largest size of a file
	Values  int    // the largest number of values in a list
	// Complete says that an object must have all fields of its struct without the option omitzero.
	Complete bool
}

// Read reads a file into the struct that v points to, and compares its schema, which is a field of that
// struct. A field that the struct lacks is an error, and so is null. If r has a Name method, as files do,
// the name is part of the position of an error.
func (f *Form) Read(r io.Reader, v any, schema *int) error {
	text, err := io.ReadAll(io.LimitReader(r, f.Bytes+1))
	if err != nil {
		return fmt.Errorf("%s: %w", f.Package, err)
	}
	if int64(len(text)) > f.Bytes {
		return diagnostic.Errorf(f.Kind, "the text is longer than %d bytes: name a file with %s", f.Bytes, f.Content)
	}
	fault := Unmarshal(text, f.Content, f.Values, v)
	if fault == nil && *schema != f.Schema {
		fault = found(0, "no schema", "\"schema\": %d in %s", f.Schema, f.Content)
	}
	if fault == nil && f.Complete {
		fault = f.missing(NewDecoder(text), text, reflect.TypeOf(v))
	}
	if fault == nil && f.Form == "" {
		return nil
	}
	var form *Error
	_ = Members(text, "", func(name string, offset int, value []byte) *Error { // another form or schema explains any fault
		if name == "form" && f.Form != "" && string(value) != strconv.Quote(f.Form) {
			form = found(offset, "the form "+shorten(string(value)), "%q, which is %s: give another file", f.Form, f.Content)
		}
		if name == "schema" && string(value) != strconv.Itoa(f.Schema) {
			fault = found(offset, shorten(string(value)), "the schema %d: %s", f.Schema, diagnostic.OtherVersion)
		}
		return nil
	})
	if fault = cmp.Or(form, fault); fault == nil {
		return nil
	}
	name := ""
	if file, ok := r.(interface{ Name() string }); ok {
		name = file.Name()
	}
	return diagnostic.At(f.Kind, name, text, fault.Offset, fault)
}

// missing reads a value that was stored in a variable of type t. It returns the fault of the first object in it that
// lacks a field.
func (f *Form) missing(d *jsontext.Decoder, text []byte, t reflect.Type) *Error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if k := t.Kind(); k != reflect.Struct && k != reflect.Map && k != reflect.Slice {
		_ = d.SkipValue() // The text is valid.
		return nil
	}
	begin := Next(d, text)
	_, _ = d.ReadToken()
	path, absent := d.StackPointer(), map[string]reflect.StructField{}
	if t.Kind() == reflect.Struct {
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			absent[name] = field
		}
	}
	for kind := d.PeekKind(); kind != '}' && kind != ']'; kind = d.PeekKind() {
		var of reflect.Type
		if t.Kind() != reflect.Slice {
			name, _ := d.ReadToken()
			of = absent[name.String()].Type
			delete(absent, name.String())
		}
		if t.Kind() != reflect.Struct {
			of = t.Elem()
		}
		if fault := f.missing(d, text, of); fault != nil {
			return fault
		}
	}
	_, _ = d.ReadToken()
	for _, name := range slices.Sorted(maps.Keys(absent)) {
		if !strings.HasSuffix(absent[name].Tag.Get("json"), ",omitzero") {
			return found(begin, fmt.Sprintf("no %q", name), "one in %s: add it, or write the file again", strings.TrimPrefix(string(path)+" of "+f.Content, " of "))
		}
	}
	return nil
}

// Unmarshal stores the value of a text in the variable that v points to. Lists may have at most the given
// number of values. Unmarshal allocates a small multiple of the text's size.
func Unmarshal(text []byte, content string, values int, v any) *Error {
	d := NewDecoder(text)
	strict := json.UnmarshalFromFunc(func(d *jsontext.Decoder, to any) error {
		if kind, n := d.StackIndex(d.StackDepth()); kind == '[' && n >= int64(values) {
			return found(0, "one more value", "at most %d", values)
		}
		if d.PeekKind() == jsontext.KindNull {
			return found(0, "null", "%s", form(reflect.TypeOf(to).Elem()))
		}
		return errors.ErrUnsupported
	})
	if err := json.UnmarshalDecode(d, v, jsontext.AllowDuplicateNames(false), json.RejectUnknownMembers(true), json.WithUnmarshalers(strict)); err != nil {
		return Explain(d, text, content, err)
	}
	return End(d, text, content)
}

// Members calls member for each member of the object in a text, in the order of the text. It passes the name,
// and the value with its offset in the text. The offset of a fault that member returns is relative to the
// value.
func Members(text []byte, content string, member func(name string, offset int, value []byte) *Error) *Error {
	d := NewDecoder(text)
	token, err := d.ReadToken()
	if err == nil && token.Kind() != '{' {
		return unsuitable(text, &json.SemanticError{ByteOffset: int64(Next(NewDecoder(text), text)), GoType: reflect.TypeFor[struct{}]()})
	}
	var names Names
	for err == nil && d.PeekKind() != '}' {
		begin := Next(d, text)
		if token, err = d.ReadToken(); err != nil {
			break
		}
		name := token.String()
		if !names.Add(name) {
			return Repeated(begin, name)
		}
		begin = Next(d, text)
		if err = d.SkipValue(); err != nil {
			break
		}
		end := d.InputOffset()
		if fault := member(name, begin, text[begin:end:end]); fault != nil {
			fault.Offset += begin
			return fault
		}
	}
	if err == nil {
		_, err = d.ReadToken()
	}
	if err != nil {
		return Explain(d, text, content, err)
	}
	return End(d, text, content)
}

// NewDecoder returns a decoder of a text, which it borrows. It allows repeated names, because a value that is
// skipped may have them, and because Names is faster.
func NewDecoder(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// Names are the names in an object.
type Names struct {
	few  [16]string // most objects have few members
	n    int
	more map[string]bool
}

// Add adds a name. It returns false if the name is there already.
func (n *Names) Add(name string) bool {
	switch {
	case slices.Contains(n.few[:n.n], name) || n.more[name]:
		return false
	case n.n < len(n.few):
		n.few[n.n] = name
		n.n++
	case n.more == nil:
		n.more = map[string]bool{}
		fallthrough
	default:
		n.more[name] = true
	}
	return true
}

// End returns a fault if text follows the value.
func End(d *jsontext.Decoder, text []byte, content string) *Error {
	if rest := bytes.TrimLeft(text[d.InputOffset():], space); len(rest) > 0 {
		return found(len(text)-len(rest), "something behind "+content, "the end of the text")
	}
	return nil
}
