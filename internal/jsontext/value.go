package jsontext

import (
	"bytes"
	"encoding"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"
)

const (
	// mostWhole bounds whole numbers whose field has no other bound.
	mostWhole = 1 << 48
	// mostValues bounds lists whose field has no other bound.
	mostValues = 1 << 20
	// longLine is the maximum length, in bytes, of a value that Write keeps on one line within
	// others.
	longLine = 160
)

// Into takes a value and stores it in the variable that v points to: an object in a struct, by the
// names of its json tags, a list in a slice (an empty one leaves it nil), a string in a string or an
// [encoding.TextUnmarshaler], whose error describes the expected value, true and false in a bool,
// and a whole number in an int or int64. It allocates a small multiple of the text. Tags of a struct
// field bound its values:
//
//	whole:"a rank,0,15"  a number's name in faults, its minimum and its maximum (or the name alone);
//	                     by default its field's name, 0 and 2^48
//	most:"64"            the largest number of values of a list, by default 2^20
func (d *Reader) Into(v any) { d.value(reflect.ValueOf(v).Elem(), "a number", "") }

func (d *Reader) value(v reflect.Value, name string, tag reflect.StructTag) {
	if text, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		word := d.Word()
		if err := text.UnmarshalText([]byte(word)); err != nil {
			d.Found(word, "%v", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.Object(func(field string) {
			if f, at := fieldOf(v, field); at.IsValid() {
				d.value(at, field, f.Tag)
			} else {
				d.Unknown(names(v.Type()))
			}
		})
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem(), name, tag)
	case reflect.Slice:
		most, err := strconv.Atoi(tag.Get("most"))
		if err != nil {
			most = mostValues
		}
		d.List(most, func() {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			d.value(v.Index(v.Len()-1), name, tag)
		})
	case reflect.String:
		v.SetString(d.Word())
	case reflect.Bool:
		v.SetBool(d.Flag())
	default:
		low, high := int64(0), int64(mostWhole)
		if word, bounds, bounded := strings.Cut(tag.Get("whole"), ","); word != "" {
			name = word
			if least, most, _ := strings.Cut(bounds, ","); bounded {
				low, _ = strconv.ParseInt(least, 10, 64)
				high, _ = strconv.ParseInt(most, 10, 64)
			}
		}
		v.SetInt(d.Whole(name, low, high))
	}
}

// fieldOf returns the field with the given JSON name of a struct, or of a struct embedded in it.
func fieldOf(v reflect.Value, name string) (reflect.StructField, reflect.Value) {
	for f, at := range v.Fields() {
		if f.Anonymous {
			if f, at := fieldOf(at, name); at.IsValid() {
				return f, at
			}
		} else if nameOf(f) == name && name != "" {
			return f, at
		}
	}
	return reflect.StructField{}, reflect.Value{}
}

// nameOf returns a field's JSON name, or "".
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return strings.TrimPrefix(name, "-")
}

// names lists the fields of a struct.
func names(t reflect.Type) string {
	var list []string
	for _, f := range reflect.VisibleFields(t) {
		if name := nameOf(f); name != "" {
			list = append(list, name)
		}
	}
	last := len(list) - 1
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// Write writes an object as encoding/json does, with a line for each of its fields and for each
// value of their lists. Values within these are on one line, except long ones that contain
// objects or lists.
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
func lines(b *bytes.Buffer, text []byte, depth int) {
	if len(text) == 2 || text[0] != '{' && text[0] != '[' || depth > 1 && (len(text) <= longLine || !bytes.ContainsAny(text[1:], "{[")) {
		b.Write(text)
		return
	}
	d := Of(text, "", "")
	separator, indent := "", "\n"+strings.Repeat("  ", depth)
	next := func() {
		b.WriteString(separator + indent + "  ")
		separator = ","
	}
	b.WriteByte(text[0])
	if text[0] == '{' {
		d.Object(func(field string) {
			next()
			b.WriteString(strconv.Quote(field) + ": ")
			lines(b, d.Raw(), depth+1)
		})
	} else {
		d.List(len(text), func() {
			next()
			lines(b, d.Raw(), depth+1)
		})
	}
	b.WriteString(indent)
	b.WriteByte(text[len(text)-1])
}
