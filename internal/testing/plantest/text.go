package plantest

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// Text returns the text form of a plan.
func Text(t require.TestingT, p *schedule.Plan) string {
	var b strings.Builder
	require.NoError(t, p.WriteText(&b))
	return b.String()
}

// FromText parses a plan from one list of actions for each rank.
func FromText(t require.TestingT, placement string, microbatches int, lists ...string) *schedule.Plan {
	var b strings.Builder
	fmt.Fprintf(&b, "weir plan 1 name \"listed\" mode training ranks %d stages %d microbatches %d placement %s frozen none\n",
		len(lists), len(strings.Fields(placement)), microbatches, placement)
	for rank, list := range lists {
		fmt.Fprintf(&b, "rank %d:\n", rank)
		if list != "" {
			fmt.Fprintf(&b, "x 1 +0: %s\n", list)
		}
	}
	p, err := schedule.ParseText(strings.NewReader(b.String()))
	require.NoError(t, err)
	return p
}

// Plan parses a plan on one rank with three microbatches from the lines of its stages and its program.
func Plan(t require.TestingT, stages int, lines string) *schedule.Plan {
	head := "weir plan 1 name \"broken\" mode training ranks 1 stages " + string(rune('0'+stages)) + " microbatches 3 placement" +
		strings.Repeat(" 0", stages) + " frozen none\n"
	p, err := schedule.ParseText(strings.NewReader(head + lines))
	require.NoError(t, err)
	return p
}

// A depth-first plan of two stages and three microbatches with drops, in segments and unrolled.
const (
	TwoStages = `
stage 0: window=1 facts=- reads=F:0 drops=F:0
stage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1
`
	TwoProgram = "rank 0: entries=1\nx 3 +1: 0F0~p 1F0~pio 1B0~ps 0B0~gsr\n"
	TwoOpened  = "rank 0: entries=1\nx 1 +0: 0F0~p 1F0~pio 1B0~ps 0B0~gsr 0F1~p 1F1~pio 1B1~ps 0B1~gsr 0F2~p 1F2~pio 1B2~ps 0B2~gsr\n"
)

// Endless is an endless reader of spaces.
type Endless struct{}

func (Endless) Read(b []byte) (int, error) {
	copy(b, bytes.Repeat([]byte{' '}, len(b)))
	return len(b), nil
}

// Full is a writer that accepts no bytes.
type Full struct{}

func (Full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
