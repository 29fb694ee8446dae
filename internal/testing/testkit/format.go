package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Format is a form of files or messages that has a number: its schema, version or protocol. For each number,
// the package of the form has a fixture in testdata/formats: the bytes that were written for the same input
// while the form had this number.
type Format struct {
	Name   string                    // of the fixtures, with a %d for the number
	Mark   string                    // the bytes that contain the number, with a verb for it
	Number int                       // the number that is written today
	Older  []int                     // the numbers that are read as well; others are refused
	Remedy string                    // part of the error for a number that is refused
	Write  func(t *testing.T) []byte // always of the same input
	Read   func([]byte) error        // nil if nothing in the tree reads the format
}

// Test compares the output of Write with the fixture of today's number. If Read is set, it reads the fixtures
// of all numbers, and requires that numbers not in Older and the next number are refused.
func (f Format) Test(t *testing.T) {
	t.Helper()
	pattern := filepath.Join("testdata", "formats", f.Name)
	written, path := f.Write(t), fmt.Sprintf(pattern, f.Number)
	mark := fmt.Appendf(nil, f.Mark, f.Number)
	if !bytes.Contains(written, mark) {
		t.Fatalf("what is written has no %q: give the test the number of today's format, and keep the fixtures of the others", mark)
	}
	if *Update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, written, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if fixture, err := os.ReadFile(path); err != nil {
		t.Fatalf("no fixture has the number %d: add it with -update, and keep the others: %v", f.Number, err)
	} else if !bytes.Equal(fixture, written) {
		t.Errorf("other bytes than in %s are written for the same input, and earlier readers of number %d may not know them: raise the number, or rewrite the fixture with -update if no version with it was released:\n%.4000s", path, f.Number, written)
	}
	if f.Read == nil {
		return
	}
	paths, err := filepath.Glob(strings.ReplaceAll(pattern, "%d", "*"))
	if err != nil {
		t.Fatal(err)
	}
	prefix, suffix, _ := strings.Cut(pattern, "%d")
	for _, path := range paths {
		number, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path, prefix), suffix))
		if err != nil {
			t.Fatal(err)
		}
		fixture, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f.read(t, path, number, fixture)
	}
	f.read(t, "the next number", f.Number+1, bytes.Replace(written, mark, fmt.Appendf(nil, f.Mark, f.Number+1), 1))
}

func (f Format) read(t *testing.T, name string, number int, text []byte) {
	t.Helper()
	err := f.Read(text)
	if number == f.Number || slices.Contains(f.Older, number) {
		if err != nil {
			t.Errorf("%s is not read: %v", name, err)
		}
		return
	}
	for _, part := range []string{strconv.Itoa(number), strconv.Itoa(f.Number), f.Remedy} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: found the error %v, expected a refusal with %q", name, err, part)
		}
	}
}

// Filled returns, as indented JSON, a T whose fields all have values, including those of nested structs, lists
// and maps. The field Schema has the given value.
func Filled[T any](t *testing.T, schema int) []byte {
	t.Helper()
	var v T
	fill(reflect.ValueOf(&v).Elem())
	reflect.ValueOf(&v).Elem().FieldByName("Schema").SetInt(int64(schema))
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(2)
	case reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(4.5)
	}
}
