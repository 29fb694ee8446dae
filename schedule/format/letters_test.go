package format_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/format"
)

// TestLetters: a file read in the letters of 2024 says so, and options can set the letters.
func TestLetters(t *testing.T) {
	const doubled = "0F0,0F1,0B0,0W0,0B1,0W1"
	for _, test := range []struct {
		text    string
		letters format.Letters
		want    string
		old     bool
	}{
		{doubled, format.AutoLetters, "0F0 0F1 0I0 0W0 0I1 0W1", true},
		{doubled, format.OldLetters, "0F0 0F1 0I0 0W0 0I1 0W1", true},
		{doubled, format.TodaysLetters, "0F0 0F1 0B0 0W0 0B1 0W1", false},
		{"0F0,0B0", format.AutoLetters, "0F0 0B0", false},
		{"0F0,0B0", format.OldLetters, "0F0 0I0", true},
		{"0F0,0BW0", format.AutoLetters, "0F0 0B0", true},
		{"0F0,0I0,0W0", format.AutoLetters, "0F0 0I0 0W0", false},
		{"0F0,0I0,0W0", format.OldLetters, "0F0 0I0 0W0", false},
		{"0F0,0W0", format.AutoLetters, "0F0 0W0", false}, // no letter here has changed
		{"1 -1", format.OldLetters, "0F0 0B0", false},
	} {
		file := read(t, test.text, format.Options{Letters: test.letters})
		require.Equal(t, test.want, words(file.Plan, 0), "%s, %v", test.text, test.letters)
		require.Equal(t, test.old, file.OldLetters, "%s, %v", test.text, test.letters)
	}
	_, err := format.Read(strings.NewReader("0F0,0BW0"), format.Options{Letters: format.TodaysLetters})
	require.ErrorContains(t, err, `line 1:5: found "0BW0", expected today's letters, as in the options: they have B and no BW`)
	_, err = format.Read(strings.NewReader("0F0"), format.Options{Letters: 3})
	require.ErrorIs(t, err, format.ErrFormat)
}

func TestLettersNames(t *testing.T) {
	for letters := format.AutoLetters; letters <= format.OldLetters; letters++ {
		back, ok := format.ParseLetters(letters.String())
		require.True(t, ok)
		require.Equal(t, letters, back)
	}
	_, ok := format.ParseLetters("new")
	require.False(t, ok)
	require.Equal(t, "auto today old letters(?)", fmt.Sprint(format.AutoLetters, format.TodaysLetters, format.OldLetters, format.Letters(3)))
}
