package main

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDrawnWindows(t *testing.T) {
	text := []byte(strings.Repeat("A paragraph of some length, as paragraphs are.\n\nA short one.\n\n", 30))
	d := drawn{text: text, longest: 20, seed: 1, step: 3}
	lengths, paragraphs, last := map[int]int{}, 0, false
	seen := make([]bool, len(text))
	for i := range 20_000 {
		begin, end := d.window(i)
		require.GreaterOrEqual(t, begin, 0)
		require.LessOrEqual(t, end, len(text))
		require.GreaterOrEqual(t, end-begin, 10)
		require.LessOrEqual(t, end-begin, 20)
		lengths[end-begin]++
		if bytes.HasSuffix(text[begin:end], paragraphEnd) {
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

	// Step, seed and number decide, and nothing else.
	again := drawn{text: text, longest: 20, seed: 1, step: 3}
	same, otherStep, otherSeed, otherLength := 0, 0, 0, 0
	for i := range 1000 {
		begin, end := d.window(999 - i)
		if b, e := again.window(999 - i); b == begin && e == end {
			same++
		}
		b, e := (&drawn{text: text, longest: 20, seed: 1, step: 4}).window(999 - i)
		if b == begin {
			otherStep++
		}
		if e-b != end-begin {
			otherLength++
		}
		if b, _ := (&drawn{text: text, longest: 20, seed: 2, step: 3}).window(999 - i); b == begin {
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
		tiles := tiled{size: c.size, length: c.length, most: c.most}
		require.Equal(t, c.count, tiles.count())
		next := 0
		for i := range c.count {
			begin, end := tiles.window(i)
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

func TestSourceFills(t *testing.T) {
	s := source{text: []byte("abc")}
	s.fill(1, 3)
	require.Equal(t, []int32{'b', 'c'}, s.tokens)
	require.Equal(t, []int32{'c', 0}, s.labels)
	require.Equal(t, []float32{1, 0}, s.weights, "the last byte has no next one")
}

func TestRate(t *testing.T) {
	require.InDelta(t, 0.1, rateAt(1, 0, 10, 100), 1e-6)
	require.InDelta(t, 1, rateAt(1, 9, 10, 100), 1e-6)
	require.InDelta(t, 1, rateAt(1, 10, 10, 100), 1e-6)
	require.InDelta(t, 0.05, rateAt(1, 99, 10, 100), 1e-6)
	require.InDelta(t, 1, rateAt(1, 0, 0, 1), 1e-6)
	for step := 10; step < 99; step++ {
		require.Greater(t, rateAt(1, step, 10, 100), rateAt(1, step+1, 10, 100))
	}
}

func TestRatio(t *testing.T) {
	mean, standard := ratio([]float64{2, 6}, []float64{1, 3})
	require.Equal(t, 2.0, mean)
	require.Zero(t, standard)
	mean, standard = ratio([]float64{1, 3, 2, 2}, []float64{1, 1, 1, 1})
	require.Equal(t, 2.0, mean)
	require.InDelta(t, math.Sqrt(2.0/3)/2, standard, 1e-12) // the sample's deviation over the root of 4
	_, standard = ratio([]float64{1}, []float64{1})
	require.True(t, math.IsNaN(standard))
}
