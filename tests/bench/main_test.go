package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/stages/transformer"
)

// tiny is a model that trains in a moment.
var tiny = configuration{Layers: 2, Heads: 2, Width: 16, Vocabulary: 50, Sequence: 12}

func TestMeasure(t *testing.T) {
	for _, threads := range []int{1, 2} {
		m, err := measure(tiny, threads, options{time: time.Millisecond, profile: true})
		require.NoError(t, err)
		require.GreaterOrEqual(t, m.Steps, 3)
		require.Greater(t, m.Best, 0.0)
		require.GreaterOrEqual(t, m.Best, m.Median)
		require.Greater(t, m.Arena, int64(4*4*50*16))
		require.Less(t, m.LastLoss, m.FirstLoss, "it does not learn the same four sequences")

		var shares float64
		calls := map[string]int{}
		for _, s := range m.Profile {
			shares += s.Share
			calls[s.Operation] = s.Calls
		}
		require.InDelta(t, 1, shares, 1e-9)
		require.Equal(t, batch*tiny.Layers, calls["attention"])
		require.Equal(t, batch, calls["head backward"])
		require.Equal(t, batch*tiny.Layers*4, calls["product weight gradient"])

		var text bytes.Buffer
		table := table{out: &text}
		require.NoError(t, table.add(m))
		require.Contains(t, text.String(), "g2 0k T12")
		require.Contains(t, text.String(), "attention backward")
	}
}

// The products of the backward do not include logits that were kept.
func TestProfileOfKeptLogits(t *testing.T) {
	logits := tiny.Sequence * tiny.Vocabulary
	for keep, products := range map[int64]int{transformer.NoLogits: 3, 0: 2, int64(4 * logits): 2} {
		m, err := measure(tiny, 1, options{time: time.Millisecond, profile: true, keep: keep})
		require.NoError(t, err)
		i := slices.IndexFunc(m.Profile, func(s share) bool { return s.Operation == "head backward" })
		s := m.Profile[i]
		require.InEpsilon(t, 2*products*logits*tiny.Width*s.Calls, s.Rate*float64(s.Time.Nanoseconds()), 1e-9)
	}
}

func TestMeasureProduct(t *testing.T) {
	for _, s := range (options{products: true}).subjects() {
		if s.M*s.N*s.K > 1<<20 {
			continue
		}
		m, err := s.measure(2, options{time: time.Microsecond})
		require.NoError(t, err)
		require.Equal(t, s.Name, m.Name)
		require.GreaterOrEqual(t, m.Rate, m.MedianRate)
		require.Greater(t, m.MedianRate, 0.0)

		var text bytes.Buffer
		table := table{out: &text}
		require.NoError(t, table.add(m))
		require.Contains(t, text.String(), s.Name)
	}
}

// peer.py reads these names.
func TestJob(t *testing.T) {
	text, err := json.Marshal(options{only: "g6 50k T64"}.subjects())
	require.NoError(t, err)
	require.JSONEq(t, `[{"kind":"step","name":"g6 50k T64","layers":6,"heads":6,"width":384,"vocabulary":50257,"sequence":64,
		"transposed_a":false,"transposed_b":false,"accumulate":false}]`, string(text))
}

func TestMatches(t *testing.T) {
	require.Len(t, configurations, 8)
	matching := func(parts string) (n int) {
		for _, c := range configurations {
			if c.matches(parts) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 8, matching(""))
	require.Equal(t, 4, matching("g4"))
	require.Equal(t, 1, matching("g6,50k T64"))
	require.Equal(t, 0, matching("T6"))
}

func TestFlagsThatAreWrong(t *testing.T) {
	for _, threads := range []string{"", "0", "two", "1,"} {
		require.ErrorContains(t, run(options{threads: threads}, new(bytes.Buffer)), "-threads")
	}
	require.ErrorContains(t, run(options{threads: "1", child: "g9"}, new(bytes.Buffer)), "no such configuration")
}
