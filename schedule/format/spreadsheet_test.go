package format_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/format"
)

// TestSpreadsheets: spreadsheets begin a file with a byte order mark and put cells in double
// quotes.
func TestSpreadsheets(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeff0F0,0F1,0B0,0B1\r\n":                        "0F0 0F1 0B0 0B1",
		"\"0F0\",\"\",\"0B0\"\r\n":                         "0F0 0B0",
		"\ufeff\"0F0\", \"(0F1;0B0)OVERLAP_F_B\" ,\"0B1\"": "0F0 0F1& 0B0 0B1",
		"\"0UNSHARD\",0F0,\"0B0\"":                         "0UNSHARD 0F0 0B0",
		"\ufeff1 1 -1 -1":                                  "0F0 0F1 0B0 0B1",
		"\ufeffweir plan 1 name \"\" mode training ranks 1 stages 1 microbatches 1 placement 0 frozen none rank 0: x 1 +0: 0F0": "0F0",
	} {
		file := read(t, text, format.Options{})
		require.Equal(t, want, words(file.Plan, 0), text)
		var back strings.Builder
		n, err := file.WriteTo(&back)
		require.NoError(t, err)
		require.EqualValues(t, len(text), n)
		require.Equal(t, text, back.String())
	}
	// The mark takes no column, because editors do not show it. A quote takes one.
	file := read(t, "\ufeff\"0F0\",\"(0F1;0B0)OVERLAP_F_B\"\n", format.Options{})
	for position, want := range []int{2, 9, 13} {
		line, column := file.LineColumn(0, int64(position))
		require.Equal(t, [2]int{1, want}, [2]int{line, column})
	}
	for text, want := range map[string]string{
		"\ufeff0F0,0X0":       `1:5: found "0X0", expected an action`,
		"\ufeff":              `1:1: found the end of the file, expected a plan`,
		"\ufeff\ufeff0F0":     `1:1: found "\ufeff0F0", expected a plan`,
		"\"0F0\",\"0X0\"":     `1:8: found "0X0", expected an action`,
		"\"0F0,0B0\"":         `1:1: found "\"0F0", expected an action such as 2F0, alone in its quotes`,
		"\"0F0\",\"":          `1:7: found "\"", expected an action such as 2F0, alone in its quotes`,
		"0F0\"":               `1:1: found "0F0\"", expected an action`,
		"\"0F0\",0B0,\"\"0\"": `1:12: found "\"0", expected an action`,
	} {
		_, err := format.Read(strings.NewReader(text), format.Options{})
		require.ErrorContains(t, err, "line "+want, text)
	}
	_, err := format.Read(strings.NewReader("0F0,\"\",0B0"), format.Options{Format: format.Comms})
	require.ErrorContains(t, err, "1:6: found an empty cell")
}
