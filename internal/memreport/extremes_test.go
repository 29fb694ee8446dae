package memreport_test

import (
	"io"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory/memlog"
)

// Extreme numbers produce a normal page.
func TestExtremes(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	ends := []int64{0, 1, math.MaxInt64, math.MaxInt64 - 1, 1 << 53, 1 << 62}
	pick := func() int64 { return ends[random.IntN(len(ends))] }
	sign := func(n int64) int64 { return n * int64(1-2*random.IntN(2)) }
	for range 300 {
		log := &memreport.Log{}
		for range 1 + random.IntN(30) {
			r := &memlog.Record{Schema: random.IntN(2)}
			r.Step, r.Rank, r.Microbatch, r.Time = pick(), random.IntN(3), int(pick()), sign(pick())
			r.Live, r.Peak, r.Reserved, r.Excess, r.Growth = pick(), pick(), pick(), sign(pick()), sign(pick())
			r.Planned, r.LivePlanned, r.PeakPlanned = random.IntN(2) == 0, pick(), pick()
			for class := range r.Classes {
				r.Classes[class] = pick()
			}
			require.NoError(t, log.Add(r))
		}
		page := pageOf(t, log)
		require.NotContains(t, page, "NaN")
		require.NotContains(t, page, "Inf")
		require.NoError(t, log.Summary().Text(io.Discard))
	}
}
