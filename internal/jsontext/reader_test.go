package jsontext_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/jsontext"
)

// thing is an object with a field of each kind.
type thing struct {
	Word  string  `json:"word"`
	Whole int64   `json:"whole"`
	Flag  bool    `json:"flag"`
	Deep  []thing `json:"deep"`
}

func read(d *jsontext.Reader) (t thing) {
	d.Object(func(field string) {
		switch field {
		case "word":
			t.Word = d.Word()
		case "whole":
			t.Whole = d.Whole("a number", -1<<40, 1<<40)
		case "flag":
			t.Flag = d.Flag()
		case "deep":
			t.Deep = []thing{}
			d.List(4, func() { t.Deep = append(t.Deep, read(d)) })
		default:
			d.Unknown("word, whole, flag or deep")
		}
	})
	return t
}

// requireAsJSON reads a text, and requires the result of encoding/json: the same values,
// or the same fault of syntax at the same place, unless a fault of another kind precedes it.
func requireAsJSON(t *testing.T, text string) {
	d, err := jsontext.New(strings.NewReader(text), 1<<20, "a thing")
	require.NoError(t, err)
	got := read(d)
	d.End(1, true)
	var want thing
	err = json.Unmarshal([]byte(text), &want)
	f := d.Fault()
	if f == nil {
		require.NoError(t, err)
		require.Equal(t, want, got)
		return
	}
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	switch {
	case strings.HasPrefix(f.Text, "found the end of the text"):
		require.True(t, ok, f.Text)
		require.EqualValues(t, len(text), syntax.Offset)
	case ok && !strings.HasPrefix(syntax.Error(), "unexpected end"):
		before := text[:syntax.Offset-1]
		line, column := 1+strings.Count(before, "\n"), len(before)-strings.LastIndexByte(before, '\n')
		require.True(t, f.Line < line || f.Line == line && f.Column <= column, f.Text)
	}
}

// texts are things, and things with every fault of syntax.
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

// FuzzReader compares the reader with encoding/json on any text.
func FuzzReader(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(requireAsJSON)
}

// TestFaults: faults name the value found and the value expected.
func TestFaults(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                               "line 1:1: found [, expected an object, {",
		`{"word": 1}`:                      "line 1:10: found 1, expected a string",
		`{"flag": "yes"}`:                  `line 1:10: found "yes", expected true or false`,
		`{"deep": null}`:                   "line 1:10: found null, expected a list, [",
		"{\n \"whole\": 1.5}":              "line 2:11: found 1.5, expected a number as a whole number from -1099511627776 to 1099511627776",
		`{"whole": false}`:                 "line 1:11: found false, expected a number",
		`{"what": 1}`:                      `line 1:2: found an unknown field "what", expected word`,
		`{"flag": true, "flag": true}`:     `line 1:16: found "flag", which is there already`,
		`{"deep": [{}, {}, {}, {}, {}]}`:   "line 1:27: found one more value, expected at most 4",
		`{"whole": NaN}`:                   `line 1:11: found "NaN", expected a value`,
		`{"whole" 1}`:                      `line 1:10: found "1", expected a colon`,
		`{"whole": 1 "flag": true}`:        `line 1:13: found "\"flag\"", expected a comma or }`,
		`{"deep": [{} {}]}`:                `line 1:14: found "{", expected a comma or ]`,
		"{\"word\": \"a\x1b\"}":            `line 1:12: found "\x1b\"", expected the rest of a string, without control characters`,
		"{\"word\": \"a\n\"}":              `line 1:12: found "\n", expected the rest`,
		`{"word": "\x"}`:                   `line 1:12: found "x\"", expected an escape of JSON, such as \n`,
		`{"word": "\u12g4"}`:               `line 1:15: found "g4\"", expected four hexadecimal digits`,
		`{"flag": trve}`:                   `line 1:12: found "ve", expected true, false or null`,
		"\x1f\x8b\b\x00":                   `line 1:1: found "\x1f\x8b\b\x00", expected a value`,
		`{} {}`:                            "line 1:4: found something behind a thing, expected the end of the text",
		`{"word": "` + "\xc3\xa4" + `", x`: `line 1:16: found "x", expected the name of a field, in quotes`,
	} {
		d, err := jsontext.New(strings.NewReader(text), 100, "a thing")
		require.NoError(t, err)
		read(d)
		d.End(1, true)
		require.NotNil(t, d.Fault(), text)
		require.Contains(t, d.Fault().Place+": "+d.Fault().Text, want, text)
	}
	_, err := jsontext.New(strings.NewReader("123"), 2, "a thing")
	require.ErrorIs(t, err, jsontext.ErrLong)
}

// A repeated field is found among any number of fields, and each is looked up once: to compare
// a quarter of a million with each other would take minutes.
func TestManyFields(t *testing.T) {
	const fields = 1 << 18
	var text strings.Builder
	for i := range fields {
		fmt.Fprintf(&text, "\"k%d\": %d,\n", i, i)
	}
	for _, again := range []int{-1, 0, fields / 2, fields - 1} {
		last := "\"end\": 0"
		if again >= 0 {
			last = fmt.Sprintf("\"k%d\": 0", again)
		}
		d, n := jsontext.Of([]byte("{"+text.String()+last+"}"), "", "the text"), 0
		d.Object(func(string) {
			d.Raw()
			n++
		})
		if again < 0 {
			require.Nil(t, d.Fault())
			require.Equal(t, fields+1, n)
			continue
		}
		require.Equal(t, fields, n)
		require.Equal(t, fields+1, d.Fault().Line)
		require.Contains(t, d.Fault().Text, "which is there already")
	}
}

// Nesting has a limit, and the fault is at the value that exceeds it.
func TestDeep(t *testing.T) {
	d := jsontext.Of([]byte(strings.Repeat("[", 1<<20)), "", "a thing")
	d.Raw()
	require.Equal(t, 10001, d.Fault().Column)
	require.Contains(t, d.Fault().Text, "expected values that are less deep inside of others")
}
