package memreport_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// leaking writes the log of five steps of 256 microbatches. From step 2 on, every 51st microbatch leaks, from
// 47 on. Each step's excess continues that of the step before, or restarts at 0.
func leaking(t *testing.T, every int, leak int64, continues bool) *memreport.Log {
	var out bytes.Buffer
	log := memlog.New(&out)
	log.Every(every)
	var leaked int64
	for step := range int64(5) {
		began := leaked
		for mb := range 256 {
			s := &memory.Sample{Step: step, Microbatch: mb, Kind: "B", Stage: 1}
			if step >= 2 && mb%51 == 47 {
				leaked += leak
				s.Growth, s.Leak = leak, memory.Leak{Stage: 1, Name: "block", Call: "F", Class: memory.Saved}
			}
			s.Live, s.Excess = 20_000+leaked+int64(mb%7)*100, leaked
			if !continues {
				s.Excess -= began
			}
			s.Peak, s.Reserved = s.Live, 1<<15
			log.Sample(s)
		}
	}
	require.NoError(t, log.Err())
	report := &memreport.Log{}
	for r, err := range memlog.Read(&out) {
		require.NoError(t, err)
		require.NoError(t, report.Add(&r))
	}
	return report
}

// A thinned log shows the same growth as a whole one, although it lacks records before the leak and has all
// records after it. A leak of a few bytes is not shown as 0. A later step's excess may continue that of the
// step before, or restart at 0.
func TestThinnedLogShowsWholeGrowth(t *testing.T) {
	for _, leak := range []int64{4, 4096} {
		for _, continues := range []bool{true, false} {
			var all []memreport.Growth
			for _, every := range []int{1, 16, 64, 256} {
				growth := leaking(t, every, leak, continues).Summary().Growth
				require.Equal(t, 5*float64(leak), growth.PerStep, "every %d, continues %v", every, continues)
				require.InEpsilon(t, float64(5*leak)/256, growth.PerMicrobatch, 0.1, "every %d", every)
				require.Equal(t, [2]int64{2, 47}, [2]int64{growth.First.Step, int64(growth.First.Microbatch)})
				all = append(all, growth)
			}
			for _, one := range all[1:] {
				require.Equal(t, all[0].PerMicrobatch, one.PerMicrobatch)
			}
		}
	}
	require.Contains(t, textOf(t, leaking(t, 64, 4, true)), "grows by 20 B with every step, 0.077 B with every microbatch on average, from step 2, microbatch 47 on; found after F of stage 1 (block)")
	require.Contains(t, textOf(t, leaking(t, 64, 4, true)), " 20 B a step\n")
}

// The call that leaked most is named.
func TestCallOfLeak(t *testing.T) {
	log := &memreport.Log{}
	for mb := range 8 {
		r := excessive(0, 0, mb, int64(mb)*100, 100)
		r.Leak = memory.Leak{Stage: mb % 3, Name: fmt.Sprint("stage\x1b", mb%3), Call: "I", Class: memory.Carry}
		require.NoError(t, log.Add(r))
	}
	require.Equal(t, &memreport.Leak{Stage: 0, Name: "stage\x1b0", Call: "I", Class: "carry", Bytes: 300}, log.Summary().Growth.Leak)
	require.Contains(t, textOf(t, log), `found after I of stage 0 (stage\x1b0)`)
}

// In a log of few steps, the result is inconclusive if the last step ends higher than the one before, whatever
// the warm-up was. Only a level that no longer rises counts as not growing.
func TestFewStepsAreInconclusive(t *testing.T) {
	for _, c := range []struct {
		lows []int64
		want string
	}{
		{[]int64{150_000, 480_000, 545_536}, "by about 64.0 KiB a step: inconclusive"},
		{[]int64{150_000, 480_000, 545_536, 611_072, 676_608}, "by about 64.0 KiB a step: inconclusive"},
		{[]int64{150_000, 480_000}, "inconclusive"},
		{[]int64{150_000, 480_000, 480_000}, "nothing grows"},
		{[]int64{150_000, 480_000, 470_000}, "nothing grows"},
		{[]int64{150_000, 480_000, 481_000, 481_000, 481_000}, "nothing grows"},
		{[]int64{150_000}, "nothing grows"},
	} {
		out := textOf(t, minimals(t, len(c.lows), 16, func(step, mb int) int64 { return c.lows[step] + 16_384*int64(min(mb, 3)) }))
		require.Contains(t, out, c.want, "%v", c.lows)
		require.Equal(t, c.want == "nothing grows", !strings.Contains(out, "inconclusive"), "%v", c.lows)
	}
}
