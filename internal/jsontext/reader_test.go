package jsontext_test

import (
	"encoding/json"
	"fmt"
	"strconv"
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

// requireAsJSON reads a text, and requires the values of encoding/json, and a fault of every text that
// is not valid. Which byte a fault names is in TestFaults.
func requireAsJSON(t *testing.T, text string) {
	d, err := jsontext.New(strings.NewReader(text), 1<<20, "a thing")
	require.NoError(t, err)
	got := read(d)
	d.End(1, true)
	if d.Fault() == nil {
		var want thing
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.Equal(t, want, got)
	}
	any := jsontext.Of([]byte(text), "", "a text")
	any.Raw()
	any.End(1, true)
	require.Equal(t, json.Valid([]byte(text)), any.Fault() == nil)
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
		`{"word": "\x"}`:                   `line 1:11: found "\\x\"", expected an escape of JSON, such as \n or \u00e9`,
		`{"word": "\u12g4"}`:               `line 1:11: found "\\u12g4\"", expected an escape`,
		`{"word": "\`:                      "line 1:12: found the end of the text, expected more of a thing",
		`{"flag": tru`:                     "line 1:13: found the end of the text",
		`{"whole": 01}`:                    `line 1:12: found "1", expected a comma or }`,
		`{"whole": -a}`:                    `line 1:12: found "a", expected a digit`,
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
		`{"flag": trve}`:                   `line 1:12: found "ve", expected true, false or null`,
		"\x1f\x8b\b\x00":                   `line 1:1: found "\x1f\x8b\b\x00", expected a value`,
		`{} {}`:                            "line 1:4: found something behind a thing, expected the end of the text",
		`{},`:                              "line 1:3: found something behind a thing",
		`{"word": "` + "\xc3\xa4" + `", x`: `line 1:16: found "x", expected the name of a field, in quotes`,
	} {
		d, err := jsontext.New(strings.NewReader(text), 100, "a thing")
		require.NoError(t, err)
		read(d)
		d.End(1, true)
		require.NotNil(t, d.Fault(), text)
		require.Contains(t, d.Fault().Place+": "+d.Fault().Text, want, text)
		require.Contains(t, d.Fault().Place, strconv.Itoa(d.Start()-strings.LastIndexByte(text[:d.Start()], '\n')))
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
