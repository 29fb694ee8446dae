package format_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
)

// TestTooManyActions: the first action beyond the limit is refused at its location, in every
// form, before the plan is checked; a file at the limit is read.
func TestTooManyActions(t *testing.T) {
	testkit.Slow(t)
	const most = schedule.MaxWritten
	csv := strings.Repeat("0F0,", most-1) + "0F0"
	header := "weir plan 1\nname \"x\"\nmode training\nranks 1\nstages 1\nmicrobatches 1\nplacement 0\nfrozen none\nrank 0:\nx 1 +0: "
	begin := `{"schema":2,"name":"x","mode":"training","ranks":1,"placement":[0],"microbatches":1,"programs":[[{"repeat":1,"stride":0,"actions":[`
	for name, c := range map[string]struct{ text, more string }{
		"compute": {csv, ",0F0"},
		"comms":   {csv + ",", "0F0"},
		"order":   {strings.Repeat("1 ", most), "1"},
		"text":    {header + strings.Repeat("0F0 ", most), "0F0"},
		"plan":    {begin + strings.Repeat(`["F",0,0],`, most), `["F",0,0]]}]]}`},
	} {
		form, _ := format.Parse(name)
		if name == "compute" || name == "order" {
			f, err := format.Read(strings.NewReader(c.text), format.Options{Format: form})
			require.NoError(t, err, name)
			require.Len(t, f.Plan.Programs[0][0].Body, most, name)
		}
		_, err := format.Read(strings.NewReader(c.text+c.more), format.Options{Format: form})
		require.ErrorIs(t, err, format.ErrFormat, name)
		require.ErrorContains(t, err, fmt.Sprintf("expected at most %d", most), name)
	}
}

// TestTooManyActionsToWrite: a plan with more actions than a file may have is refused before
// they are written out.
func TestTooManyActionsToWrite(t *testing.T) {
	const m = schedule.MaxWritten + 1
	plan := &schedule.Plan{Name: "long", Mode: schedule.ForwardOnly, Placement: schedule.Looped(1, 1), Microbatches: m, Programs: [][]schedule.Segment{
		{{Body: []schedule.Action{schedule.NewAction(schedule.F, 0, 0)}, Repeat: m, Stride: 1}},
	}}
	for _, form := range []format.Format{format.Compute, format.Comms, format.Order} {
		var out strings.Builder
		require.ErrorIs(t, format.Write(&out, plan, form), format.ErrRefused)
		require.Empty(t, out.String())
	}
	require.NoError(t, format.Write(io.Discard, plan, format.JSON))
}
