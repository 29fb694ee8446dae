package jsontext_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/jsontext"
)

// Raw takes the text of exactly one value, of any kind, which must be valid.
func TestRawTakesAValue(t *testing.T) {
	for _, value := range []string{
		"7", "-1.5e3", "true", "null", `"a ]} \\\" b"`, "[]", "{}", `{"a": [1, {"b": "}"}], "c": null}`, "[[[1,2],[3]] ,\n4]",
	} {
		d := jsontext.Of([]byte(`{"first": `+value+` , "second": true}`), "", "the text")
		var first string
		second := false
		d.Object(func(field string) {
			if field == "first" {
				require.Equal(t, 10, d.Ahead())
				first = string(d.Raw())
				return
			}
			second = d.Flag()
		})
		require.Nil(t, d.Fault(), value)
		require.Equal(t, value, first)
		require.True(t, second, value)
	}
	for _, text := range []string{"", "[", `{"a": [`, `["a`, `[[]`, `{"a" 1}`, "[1}", "x"} {
		d := jsontext.Of([]byte(text), "", "the text")
		d.Raw()
		require.NotNil(t, d.Fault(), text)
	}
}

// The place of a fault is a line and a byte, and the first fault stays.
func TestWrongIsAtItsPlace(t *testing.T) {
	d := jsontext.Of([]byte("[\n  \"one\"]"), "dir/file", "the text")
	d.List(1, func() {
		require.Equal(t, "one", d.Word())
		require.Equal(t, 4, d.Start())
	})
	d.Wrong(5, "not %this")
	d.Wrong(0, "that")
	require.Equal(t, &jsontext.Fault{Line: 2, Column: 4, Place: "dir/file:2:4", Text: "not %this"}, d.Fault())
	require.Empty(t, d.Word())
}
