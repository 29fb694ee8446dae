package jsonfile_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
)

// thing is an object with a field of each kind.
type thing struct {
	Schema int     `json:"-"`
	Word   string  `json:"word"`
	Whole  int64   `json:"whole"`
	Flag   bool    `json:"flag"`
	Deep   []thing `json:"deep"`
}

// requireAsJSON reads a text, and requires the values of encoding/json, and a fault for every text that
// is invalid.
func requireAsJSON(t *testing.T, text string) {
	var got, want thing
	if jsonfile.Unmarshal([]byte(text), "a thing", 4, &got) == nil {
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.Equal(t, want, got)
	}
	fault := jsonfile.Members([]byte(text), "a thing", func(_ string, offset int, value []byte) *jsonfile.Error {
		require.True(t, json.Valid(value))
		require.Equal(t, text[offset:offset+len(value)], string(value))
		return nil
	})
	if fault == nil {
		require.True(t, json.Valid([]byte(text)))
	} else {
		require.True(t, fault.Offset >= 0 && fault.Offset <= len(text))
	}
}

// texts has things, and things with every fault of syntax.
var texts = []string{
	`{}`, ` { "word" : "a" , "whole":-12,"flag":true,"deep":[{},{}] } `,
	`{"word":"\"\\\/\b\f\n\r\tä\u00e4\ud83d\ude00\ud800` + "ä\xff\x7f" + `"}`, `{"\u0077ord":"x"}`,
	`{"whole":0}`, `{"whole":-0}`, `{"whole":1.5}`, `{"whole":1e2}`, `{"whole":9223372036854775808}`,
	``, ` `, `x`, `{`, `{"`, `{"word`, `{"word"`, `{"word":`, `{"word":"`, `{"word":"\`, `{"word":"\u1`, `{"whole":1`, `{"whole":-`, `{"whole":1.`, `{"whole":1e`,
	`{"flag":t`, `{"flag":fals`, `{"deep":`, `{"deep":[`, `{"deep":[{}`, `{"deep":[{},`,
	`{"word"."a"}`, `{word:"a"}`, `{"word":"a",}`, `{"word":"a" "flag":true}`, `{,}`, `{"word":}`, `{"word":]`, `[}`, `{"deep":[}`, `{"deep":[,]}`, `{"deep":[{}{}]}`, `{"deep":[{},]}`, `{"deep":[{}}`,
	"{\"word\":\"a\nb\"}", "{\n\"word\":\n\"\x00\"}", `{"word":"\x"}`, `{"word":"\u12g4"}`, `{"word":'a'}`,
	`{"whole":01}`, `{"whole":-a}`, `{"whole":1.a}`, `{"whole":1e+}`, `{"whole":+1}`, `{"whole":.5}`, `{"whole":1a}`,
	`{"flag":tru}`, `{"flag":trve}`, `{"flag":nul}`, `{"flag":null}`, `{"flag":truee}`, `{"flag":fa"se}`,
	`{} x`, `{"word":1}`, `{"word":{}}`, `{"flag":[]}`, `{"deep":{}}`, `{"deep":"x"}`, `{"word":"a","word":"b"}`, `{"deep":[{},{},{},{},{}]}`, "\xef\xbb\xbf{}",
}

func TestSyntaxAsJSON(t *testing.T) {
	for _, text := range texts {
		t.Run(text, func(t *testing.T) { requireAsJSON(t, text) })
	}
}

// FuzzRead compares the package with encoding/json on any text.
func FuzzRead(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(requireAsJSON)
}

// TestFaults requires that faults name the value found and the value expected.
func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                               "line 1:1: found [, expected an object, {",
		`{"word": 1}`:                      "line 1:10: found 1, expected a string",
		`{"flag": "yes"}`:                  `line 1:10: found "yes", expected true or false`,
		`{"deep": null}`:                   "line 1:10: found null, expected a list, [",
		"{\n \"whole\": 1.5}":              "line 2:11: found 1.5, expected a whole number",
		`{"whole": false}`:                 "line 1:11: found false, expected a whole number",
		`{"what": 1}`:                      `line 1:2: found an unknown field "what", expected word, whole, flag or deep`,
		`{"flag": true, "flag": true}`:     `line 1:16: found "flag", which is there already`,
		`{"deep": [{}, {}, {}, {}, {}]}`:   "line 1:27: found one more value, expected at most 4",
		`{"whole": NaN}`:                   `line 1:11: found "NaN", expected a value`,
		`{"whole" 1}`:                      `line 1:10: found "1", expected a colon`,
		`{"whole": 1 "flag": true}`:        `line 1:13: found "\"flag\"", expected a comma or }`,
		`{"deep": [{} {}]}`:                `line 1:14: found "{", expected a comma or ]`,
		"{\"word\": \"a\x1b\"}":            `line 1:12: found "\x1b\"", expected the rest of a valid value`,
		"{\"word\": \"a\n\"}":              `line 1:12: found "\n", expected the rest of a valid value`,
		`{"word": "\x"}`:                   `line 1:11: found "\\x\"", expected the rest of a valid value`,
		`{"word": "\u12g4"}`:               `line 1:11: found "\\u12g4\"", expected the rest of a valid value`,
		`{"word": "\`:                      "line 1:12: found the end of the text, expected more of a thing",
		`{"flag": tru`:                     "line 1:13: found the end of the text",
		`{"whole": 01}`:                    `line 1:12: found "1", expected a comma or }`,
		`{"whole": -a}`:                    `line 1:12: found "a", expected the rest of a valid value`,
		`{"whole": 1, }`:                   `line 1:14: found "}", expected the name of a field, in quotes`,
		`{"whole": 1,, "flag": true}`:      `line 1:13: found ",", expected the name of a field, in quotes`,
		`{, "whole": 1}`:                   `line 1:2: found ",", expected the name of a field, in quotes`,
		`{"whole":, "flag": true}`:         `line 1:10: found ",", expected a value`,
		`{"whole":: 1}`:                    `line 1:10: found ":", expected a value`,
		`{"whole", 1}`:                     `line 1:9: found ",", expected a colon`,
		`{7: 1}`:                           `line 1:2: found "7", expected the name of a field, in quotes`,
		`{"deep": [{}, ]}`:                 `line 1:15: found "]", expected a value`,
		`{"deep": [, {}]}`:                 `line 1:11: found ",", expected a value`,
		`{"deep": [{}}`:                    `line 1:13: found "}", expected a comma or ]`,
		`{"deep": [{}:{}]}`:                `line 1:13: found ":", expected a comma or ]`,
		`{"word": "a"]`:                    `line 1:13: found "]", expected a comma or }`,
		`{"flag": trve}`:                   `line 1:12: found "ve", expected the rest of a valid value`,
		"\x1f\x8b\b\x00":                   `line 1:1: found "\x1f\x8b\b\x00", expected a value`,
		`{} {}`:                            "line 1:4: found something behind a thing, expected the end of the text",
		`{},`:                              "line 1:3: found something behind a thing",
		`{"word": "` + "\xc3\xa4" + `", x`: `line 1:16: found "x", expected the name of a field, in quotes`,
	} {
		err := form.Read(strings.NewReader(text), &thing{}, new(int))
		require.ErrorIs(t, err, errThing)
		require.ErrorContains(t, err, want, text)
	}
	err := form.Read(strings.NewReader(strings.Repeat(" ", 101)), &thing{}, new(int))
	require.ErrorContains(t, err, "longer than 100 bytes")
	err = form.Read(strings.NewReader("{}"), &thing{}, new(1))
	require.ErrorContains(t, err, "found no schema")
}

var (
	errThing = errors.New("thing")
	form     = jsonfile.Form{Kind: errThing, Content: "a thing", Bytes: 100, Values: 4}
)

// Members moves the fault that its function returns to the offset of the value.
func TestMembers(t *testing.T) {
	var names []string
	fault := jsonfile.Members([]byte(` {"a": 1, "b" : [{"c": 7}], "d": 3}`), "a thing", func(name string, _ int, value []byte) *jsonfile.Error {
		if names = append(names, name); name == "b" {
			return &jsonfile.Error{Offset: 7, Text: string(value)}
		}
		return nil
	})
	require.Equal(t, []string{"a", "b"}, names)
	require.Equal(t, &jsonfile.Error{Offset: 23, Text: `[{"c": 7}]`}, fault)
	skip := func(string, int, []byte) *jsonfile.Error { return nil }
	require.Nil(t, jsonfile.Members([]byte(`{"a": {"c": 1, "c": 2}}`), "a thing", skip), "what is skipped may repeat names")
	require.Equal(t, &jsonfile.Error{Offset: 9, Text: `found "a", which is there already: give it once`}, jsonfile.Members([]byte(`{"a": 1, "a": 2}`), "a thing", skip))
	var n struct{ A int }
	require.Equal(t, "found \"\ufffd\", expected a whole number", jsonfile.Unmarshal([]byte("{\"A\": \"\xff\"}"), "a thing", 1, &n).Text)
}

// A repeated field is found among any number of fields. Each field is looked up only once, because comparing a
// quarter of a million fields with each other would take minutes.
func TestManyFields(t *testing.T) {
	const count = 1 << 18
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, "\"k%d\": %d,\n", i, i)
	}
	for _, again := range []int{0, count / 2, count - 1} {
		n := 0
		fault := jsonfile.Members(fmt.Appendf(nil, "{%s\"k%d\": 0}", text.String(), again), "the text", func(string, int, []byte) *jsonfile.Error {
			n++
			return nil
		})
		require.Equal(t, count, n)
		require.Contains(t, fault.Text, "which is there already")
	}
}

// Nesting is limited. The fault is at the value that exceeds the limit.
func TestDeep(t *testing.T) {
	fault := jsonfile.Members([]byte("{\"a\":"+strings.Repeat("[", 1<<20)), "a thing", func(string, int, []byte) *jsonfile.Error { return nil })
	require.Equal(t, &jsonfile.Error{Offset: 5 + 9999, Text: `found "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[...", expected values that are less deep inside of others`}, fault)
}
