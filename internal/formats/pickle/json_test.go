package pickle_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/formats/pickle"
)

var errFile = errors.New("a file")

var longNumber = regexp.MustCompile(`[-+.0-9eE]{65}`)

// FuzzReadJSON requires the values of encoding/json for valid JSON in UTF-8 that is not too deep
// and has no number that is too long.
func FuzzReadJSON(f *testing.F) {
	f.Add([]byte(` {"a\"\\": [1, -2.5e3, "x", true, null], "b": {}, "\u00e9\\": 12345678901234567890} `))
	f.Add([]byte(`[[], "", "\\", "\\\"", 0, false, 9223372036854775807]`))
	f.Add([]byte(`[0.25, ` + strings.Repeat("1", 64) + `]`))
	f.Add([]byte(strings.Repeat("1", 66)))
	f.Fuzz(func(t *testing.T, file []byte) {
		data, err := pickle.ReadJSON(bytes.NewReader(file), pickle.Options{Err: errFile})
		var want any
		if json.Unmarshal(file, &want) != nil || !utf8.Valid(file) || bytes.Count(file, []byte("[")) > 900 || bytes.Count(file, []byte("{")) > 900 {
			return
		}
		if longNumber.Match(file) && err != nil {
			require.ErrorContains(t, err, "a number of more than 64 bytes")
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, anyOf(data, data.Top()))
	})
}

// anyOf returns a value as encoding/json does.
func anyOf(d *pickle.Data, v pickle.Value) any {
	switch v.Kind {
	case pickle.Boolean:
		return v.Bits != 0
	case pickle.Integer:
		return float64(v.Bits)
	case pickle.Float:
		return math.Float64frombits(uint64(v.Bits))
	case pickle.Text:
		return d.Text(v)
	case pickle.List:
		list := []any{}
		for _, item := range d.Items(v) {
			list = append(list, anyOf(d, item))
		}
		return list
	case pickle.Dict:
		dict := map[string]any{}
		for key, value := range d.Pairs(v) {
			dict[key] = anyOf(d, value)
		}
		return dict
	}
	return nil
}
