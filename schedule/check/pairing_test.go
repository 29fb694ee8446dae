package check_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// inSegments returns segments with bodies of random length that run the given kinds of a stage for
// each microbatch of the sequence.
func inSegments(rng *rand.Rand, sequence []int, stage int, kinds ...schedule.Kind) []schedule.Segment {
	var program []schedule.Segment
	for len(sequence) > 0 {
		n := min(1+rng.IntN(4), len(sequence))
		s := schedule.Segment{Repeat: 1}
		for _, mb := range sequence[:n] {
			for _, k := range kinds {
				s.Body = append(s.Body, schedule.NewAction(k, stage, mb))
			}
		}
		if len(sequence) > n {
			s.Stride = sequence[n] - sequence[0]
		}
		for limit := 1 + rng.IntN(40); s.Repeat < limit && len(sequence) >= n*(s.Repeat+1); s.Repeat++ {
			next := sequence[n*s.Repeat : n*(s.Repeat+1)]
			if !slices.EqualFunc(sequence[:n], next, func(a, b int) bool { return b == a+s.Repeat*s.Stride }) {
				break
			}
		}
		sequence = sequence[n*s.Repeat:]
		program = append(program, s)
	}
	return program
}

// TestCrossedOrderInSegments compares the faults on a link whose two ends have different segments
// with the faults in the same lists.
func TestCrossedOrderInSegments(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 3))
	crossed := 0
	for range 3_000 {
		var sequence []int
		m := 1 + rng.IntN(80)
		for from := 0; from < m; { // ascending and descending ranges
			n := min(1+rng.IntN(60), m-from)
			stretch := make([]int, n)
			for i := range stretch {
				stretch[i] = from + i
			}
			if rng.IntN(3) == 0 {
				slices.Reverse(stretch)
			}
			sequence = append(sequence, stretch...)
			from += n
		}
		receives := slices.Clone(sequence)
		switch from := rng.IntN(m); rng.IntN(6) {
		case 0:
			to := rng.IntN(m)
			receives[from], receives[to] = receives[to], receives[from]
		case 1:
			slices.Reverse(receives[from:])
		case 2, 3: // the same permutation in each group
			order := rng.Perm(2 + rng.IntN(3))
			for ; from+len(order) <= m; from += len(order) {
				for i, k := range order {
					receives[from+i] = sequence[from+k]
				}
			}
		case 4: // the even ones first
			var odd []int
			receives = receives[:from]
			for i, mb := range sequence[from:] {
				if i%2 == 0 {
					receives = append(receives, mb)
				} else {
					odd = append(odd, mb)
				}
			}
			receives = append(receives, odd...)
		}
		p := &schedule.Plan{Name: "link", Mode: schedule.ForwardOnly, Microbatches: m, Placement: schedule.Looped(2, 2), Programs: [][]schedule.Segment{
			inSegments(rng, sequence, 0, schedule.F, schedule.SendF), inSegments(rng, receives, 1, schedule.RecvF, schedule.F)}}
		got, want := check.Plan(p), check.Plan(plantest.Expand(p))
		if slices.Equal(sequence, receives) {
			require.NoError(t, got, "seed %d", plantest.Seed())
			continue
		}
		crossed++
		a, _ := errors.AsType[*check.Error](got)
		b, _ := errors.AsType[*check.Error](want)
		require.Equal(t, plantest.CodesOf(want), plantest.CodesOf(got), "seed %d\nsegments: %v\nlists: %v", plantest.Seed(), got, want)
		require.Equal(t, check.Pairing, a.Faults[0].Code)
		require.Equal(t, b.Faults[0], a.Faults[0], "seed %d", plantest.Seed())
	}
	require.NotZero(t, crossed)
}

// A link with a million messages is compared by segments, and crossed messages in the middle are
// found.
func TestCrossedOrderInTheMiddle(t *testing.T) {
	const m = 1_000_000
	send, receive := []schedule.Action{schedule.NewAction(schedule.F, 0, 0), schedule.NewAction(schedule.SendF, 0, 0)}, []schedule.Action{schedule.NewAction(schedule.RecvF, 1, 0), schedule.NewAction(schedule.F, 1, 0)}
	at := func(body []schedule.Action, from, repeat int) schedule.Segment {
		s := schedule.Segment{Repeat: repeat, Stride: 1}
		for _, a := range body {
			s.Body = append(s.Body, a.Shift(from))
		}
		return s
	}
	p := &schedule.Plan{Name: "link", Mode: schedule.ForwardOnly, Microbatches: m, Placement: schedule.Looped(2, 2), Programs: [][]schedule.Segment{
		{at(send, 0, m)},
		{at(receive, 0, m/2), at(receive, m/2+1, 1), at(receive, m/2, 1), at(receive, m/2+2, m/2-2)},
	}}
	proof, err := check.Prove(p, schedule.Unlimited)
	plantest.RequireCodes(t, err, check.Pairing)
	require.ErrorContains(t, err, "Rank 1, action 1000000: 1RECV_F500001 receives 0SEND_F500000, which rank 0 sent before 0SEND_F500001; send and receive in the same order.")
	require.Less(t, proof.Visited, int64(1_000))
}

// Crossed messages in nested loops are found at the same positions as in a list.
func TestPairingInLoopsOfLoops(t *testing.T) {
	act := func(kind schedule.Kind, mbs ...int) (body []schedule.Action) {
		for _, mb := range mbs {
			body = append(body, schedule.NewAction(kind, int(kind-schedule.SendF), mb))
		}
		return body
	}
	const f, send, recv = schedule.F, schedule.SendF, schedule.RecvF
	compute := func(stage, mb int) schedule.Action { return schedule.NewAction(f, stage, mb) }
	plan := &schedule.Plan{Name: "crossed", Mode: schedule.ForwardOnly, Placement: schedule.Looped(2, 2), Microbatches: 24, Programs: [][]schedule.Segment{
		{{Inner: []schedule.Segment{{Body: append([]schedule.Action{compute(0, 0)}, act(send, 0)...), Repeat: 4, Stride: 1}}, Repeat: 6, Stride: 4}},
		{{Inner: []schedule.Segment{
			{Body: append(act(recv, 0), compute(1, 0)), Repeat: 2, Stride: 1},
			{Body: append(act(recv, 3, 2), compute(1, 2), compute(1, 3)), Repeat: 1},
		}, Repeat: 6, Stride: 4}},
	}}
	faults := func(p *schedule.Plan) (places []int64) {
		invalid, ok := errors.AsType[*check.Error](check.Plan(p))
		require.True(t, ok)
		for _, f := range invalid.Faults {
			require.Equal(t, check.Pairing, f.Code)
			places = append(places, f.Position)
		}
		return places
	}
	got, want := faults(plan), faults(plantest.Expand(plan))
	require.Contains(t, want, got[0])
	require.EqualValues(t, 4, got[0])
}
