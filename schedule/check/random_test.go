package check_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
)

// spoil changes the program of a rank in at most one place.
func spoil(t *rapid.T, p *schedule.Plan, rank int) {
	program := p.Programs[rank]
	segment := &program[rapid.IntRange(0, len(program)-1).Draw(t, "segment")]
	segment.Body = slices.Clone(segment.Body)
	at := rapid.IntRange(0, len(segment.Body)-1).Draw(t, "at")
	a := &segment.Body[at]
	switch rapid.IntRange(0, 9).Draw(t, "spoil") {
	case 0:
		other := rapid.IntRange(0, len(segment.Body)-1).Draw(t, "other")
		*a, segment.Body[other] = segment.Body[other], *a
	case 1:
		if len(segment.Body) > 1 {
			segment.Body = slices.Delete(segment.Body, at, at+1)
		}
	case 2:
		segment.Body = append(segment.Body, *a)
	case 3:
		*a = schedule.NewAction(a.Kind(), a.Stage(), rapid.IntRange(0, p.Microbatches).Draw(t, "mb")).WithDrop(a.Drop())
	case 4:
		*a = a.WithDrop(a.Drop() ^ 1<<rapid.IntRange(0, 8).Draw(t, "bit"))
	case 5:
		segment.Repeat = max(1, segment.Repeat+rapid.IntRange(-2, 2).Draw(t, "repeat"))
	case 6:
		segment.Stride += rapid.IntRange(-2, 2).Draw(t, "stride")
	case 7:
		*a = schedule.NewAction(schedule.Kind(rapid.IntRange(1, int(schedule.Quantize)).Draw(t, "kind")), a.Stage(), a.Microbatch()).WithDrop(a.Drop())
	case 8:
		other := &program[rapid.IntRange(0, len(program)-1).Draw(t, "other")]
		*segment, *other = *other, *segment
	}
}
