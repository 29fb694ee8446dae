package plantest

import "errors"
import "slices"
import "strings"

import "github.com/stretchr/testify/require"

import "github.com/weir-ml/weir/schedule"
import "github.com/weir-ml/weir/schedule/check"

// CodesOf returns the codes of an error of Check, each once, in order.
func CodesOf(err error) []check.Code {
	invalid, ok := errors.AsType[*check.Error](err)
	if !ok {
		return nil
	}
	var codes []check.Code
	for _, f := range invalid.Faults {
		codes = append(codes, f.Code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// Plan parses a plan on one rank with three microbatches from stage lines and a program.
func Plan(t require.TestingT, stages int, lines string) *schedule.Plan {
	head := "weir plan 1 name \"broken\" mode training ranks 1 stages " + string(rune('0'+stages)) + " microbatches 3 placement" +
		strings.Repeat(" 0", stages) + " frozen none\n"
	p, err := schedule.ParseText(strings.NewReader(head + lines))
	require.NoError(t, err)
	return p
}

// Plans that the tests break: depth-first over two stages and three microbatches, with
// drops.
const (
	TwoStages = `
stage 0: window=1 facts=- reads=F:0 drops=F:0
stage 1: window=1 facts=- reads=F:1,2;B:1 drops=F:2;B:1
`
	TwoProgram = "rank 0: entries=1\nx 3 +1: 0F0~p 1F0~pio 1B0~ps 0B0~gsr\n"
	TwoOpened  = "rank 0: entries=1\nx 1 +0: 0F0~p 1F0~pio 1B0~ps 0B0~gsr 0F1~p 1F1~pio 1B1~ps 0B1~gsr 0F2~p 1F2~pio 1B2~ps 0B2~gsr\n"
)
