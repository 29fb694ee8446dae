package corpus_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/corpus"
)

func TestDrawnWindows(t *testing.T) {
	text := []byte(strings.Repeat("A paragraph of some length, as paragraphs are.\n\nA short one.\n\n", 30))
	d := corpus.Drawn{Text: text, Longest: 20, Seed: 1, Step: 3}
	lengths, paragraphs, last := map[int]int{}, 0, false
	seen := make([]bool, len(text))
	for i := range 20_000 {
		begin, end := d.Window(i)
		require.GreaterOrEqual(t, begin, 0)
		require.LessOrEqual(t, end, len(text))
		require.GreaterOrEqual(t, end-begin, 10)
		require.LessOrEqual(t, end-begin, 20)
		lengths[end-begin]++
		if bytes.HasSuffix(text[begin:end], []byte("\n\n")) {
			paragraphs++
		}
		last = last || end == len(text)
		for j := begin; j < end; j++ {
			seen[j] = true
		}
	}
	require.Len(t, lengths, 11, "every length from half to the longest")
	require.Greater(t, paragraphs, 2000)
	require.True(t, last, "the end of the text, which has no next byte, is drawn too")
	require.NotContains(t, seen, false)

	// Windows depend on step, seed and number, and on nothing else.
	again := corpus.Drawn{Text: text, Longest: 20, Seed: 1, Step: 3}
	same, otherStep, otherSeed, otherLength := 0, 0, 0, 0
	for i := range 1000 {
		begin, end := d.Window(999 - i)
		if b, e := again.Window(999 - i); b == begin && e == end {
			same++
		}
		b, e := (&corpus.Drawn{Text: text, Longest: 20, Seed: 1, Step: 4}).Window(999 - i)
		if b == begin {
			otherStep++
		}
		if e-b != end-begin {
			otherLength++
		}
		if b, _ := (&corpus.Drawn{Text: text, Longest: 20, Seed: 2, Step: 3}).Window(999 - i); b == begin {
			otherSeed++
		}
	}
	require.Equal(t, 1000, same)
	require.Less(t, otherStep, 20)
	require.Less(t, otherSeed, 20)
	require.Greater(t, otherLength, 800, "lengths are drawn anew in every step")
}

func TestTiledWindows(t *testing.T) {
	for _, c := range []struct{ size, length, most, count int }{
		{100, 10, 99, 10}, {101, 10, 99, 11}, {5, 10, 99, 1}, {1000, 10, 7, 7},
	} {
		tiles := corpus.Tiled{Size: c.size, Length: c.length, Most: c.most}
		require.Equal(t, c.count, tiles.Count())
		next := 0
		for i := range c.count {
			begin, end := tiles.Window(i)
			require.Zero(t, begin%c.length)
			require.Greater(t, end, begin)
			require.LessOrEqual(t, end, c.size)
			if c.count < c.most {
				require.Equal(t, next, begin, "without a gap")
			} else {
				require.GreaterOrEqual(t, begin, next)
			}
			next = end
		}
		if c.count < c.most {
			require.Equal(t, c.size, next)
		}
	}
}
