package memreport_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/memreport"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/trainer/report"
)

const mib = 1 << 20

// minimal is a record of the minimal form.
func minimal(step int64, rank, microbatch int, allocated int64) *memlog.Record {
	r := &memlog.Record{}
	r.Step, r.Rank, r.Microbatch, r.Live, r.Peak, r.Reserved = step, rank, microbatch, allocated, allocated+14, allocated+20
	return r
}

// minimals is a log of one rank with the given live bytes.
func minimals(t *testing.T, steps, microbatches int, level func(step, microbatch int) int64) *memreport.Log {
	log := &memreport.Log{}
	for step := range steps {
		for mb := range microbatches {
			require.NoError(t, log.Add(minimal(int64(step), 0, mb, level(step, mb))))
		}
	}
	return log
}

// textOf and pageOf return the text and the page of a log.
func textOf(t *testing.T, log *memreport.Log) string {
	var out strings.Builder
	require.NoError(t, log.Summary().Text(&out))
	return out.String()
}

func pageOf(t *testing.T, log *memreport.Log) string {
	var out strings.Builder
	require.NoError(t, log.Page("a <log>").Write(&out))
	return out.String()
}

// Ranks of several replicas are listed with their replica, in text, JSON and the page.
func TestReplicas(t *testing.T) {
	log := &memreport.Log{}
	for rank := range 2 {
		r := minimal(0, rank, 0, 100)
		r.Replica, r.Replicated = rank, true
		require.NoError(t, log.Add(r))
	}
	require.Regexp(t, `rank +replica +level.*\n +0 +0 +100 B.*\n +1 +1 +100 B`, textOf(t, log))
	out, err := json.Marshal(log.Summary())
	require.NoError(t, err)
	require.Contains(t, string(out), `"rank":0,"replica":0,`)
	require.Contains(t, string(out), `"rank":1,"replica":1,`)
	require.Contains(t, pageOf(t, log), ">replica<")
}

// TestGrowthByLevel has logs with and without growth, and the findings about them.
func TestGrowthByLevel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	noise := func() int64 { return random.Int64N(200 * mib) }
	for _, test := range []struct {
		name                string
		steps, microbatches int
		level               func(step, mb int) int64
		want                string // of the text
	}{
		{"flat", 5, 64, func(int, int) int64 { return 5000 }, "nothing grows\n"},
		{"Fast-LLM #486", 1, 128, func(_, mb int) int64 { return 46_690*mib + 164*mib*int64(mb) },
			"rank 0 grows by 164 MiB with every microbatch, from step 0, microbatch 1 on; still growing at the end: yes\n"},
		{"its residual", 1, 1024, func(_, mb int) int64 { return 46_690*mib + 240*1024*int64(max(mb-1, 0)) },
			"rank 0 grows by 240 KiB with every microbatch, from step 0, microbatch 2 on; still growing at the end: yes\n"},
		{"given back at step end", 10, 32, func(_, mb int) int64 { return 1<<30 + 512*int64(mb) },
			"rank 0 grows by 512 B with every microbatch, in every step from microbatch 1 on; still growing at the end: yes\n"},
		{"never given back", 10, 32, func(step, mb int) int64 { return 1<<30 + 512*int64(32*step+mb) },
			"rank 0 grows by 512 B with every microbatch, from step 0, microbatch 1 on; a step gives nothing of it back; still growing at the end: yes\n"},
		{"behind a step", 20, 16, func(step, _ int) int64 { return 5000 + 300*int64(max(step-4, 0)) },
			"rank 0 grows by 300 B with every step, from step 5 on; within a step it does not; still growing at the end: yes\n"},
		{"variable lengths", 1, 1024, func(int, int) int64 { return 1<<30 + noise() }, "nothing grows\n"},
		{"warm-up", 20, 16, func(step, _ int) int64 { return 5000 + 9000*int64(min(step, 2)) }, "nothing grows\n"},
		{"a pipeline that drains", 10, 32, func(_, mb int) int64 { return 5000 + 700*int64(min(3, 31-mb)) }, "nothing grows\n"},
		{"too short to say", 1, 6, func(_, mb int) int64 { return int64(mb * mb) },
			"rank 0 ends its steps higher than it begins them, by about 5 B a microbatch: inconclusive, the log is too short to tell growth from chance\n"},
		{"one leak of sixteen, 6 steps", 6, 20, func(step, mb int) int64 { return 5000 + 4096*int64((20*step+mb+1)/16) },
			"rank 0 ends higher than it began, by about 4.8 KiB a step: inconclusive, the log is too short to tell growth from chance\n"},
		{"one leak of sixteen, 20 steps", 20, 20, func(step, mb int) int64 { return 5000 + 4096*int64((20*step+mb+1)/16) },
			"rank 0 grows by 256 B with every microbatch (99 %: 205 B to 293 B), from step 0, microbatch 1 on; a step gives nothing of it back; still growing at the end: yes\n"},
		{"one leak of sixteen, 1 step", 1, 64, func(_, mb int) int64 { return 5000 + 4096*int64((mb+1)/16) },
			"rank 0 ends its steps higher than it begins them, by about 241 B a microbatch: inconclusive, the log is too short to tell growth from chance\n"},
		{"the first steps fill a cache", 20, 16, func(step, mb int) int64 { return 5000 + 4096*int64(min(16*step+mb, 100)) }, "nothing grows\n"},
		{"a warm-up that saturates", 20, 16, func(step, mb int) int64 { return 5000 + int64(2e5*(1-math.Exp(-float64(16*step+mb)/40))) }, "nothing grows\n"},
		{"a warm-up within a step", 1, 64, func(_, mb int) int64 { return 5000 + int64(2e5*(1-math.Exp(-float64(mb)/10))) }, "nothing grows\n"},
		{"a leak behind a warm-up", 40, 16, func(step, mb int) int64 {
			return 5000 + int64(2e6*(1-math.Exp(-float64(16*step+mb)/10))) + 512*int64(16*step+mb)
		},
			"rank 0 grows by 8.0 KiB with every step, from step 1 on; within a step it does not; still growing at the end: yes\n"},
		{"a leak that ends", 40, 16, func(step, mb int) int64 { return 5000 + 4096*int64(min(16*step+mb, 480)) },
			"rank 0 grows by 3.0 KiB with every microbatch, in every step from microbatch 1 on; still growing at the end: no\n"},
		{"short and sure", 1, 4, func(_, mb int) int64 { return int64(240 * mb) },
			"rank 0 grows by 240 B with every microbatch, from step 0, microbatch 1 on; still growing at the end: yes\n"},
		{"late, given back at step end", 100, 64, func(step, mb int) int64 { return 1<<30 + int64(step/80)*16384*int64(mb) },
			"rank 0 grows by 16.0 KiB with every microbatch, from step 80, microbatch 1 on; still growing at the end: yes\n"},
		{"late, never given back", 100, 64, func(step, mb int) int64 { return 1<<30 + 16384*int64(max((step-80)*64+mb+1, 0)) },
			"rank 0 grows by 16.0 KiB with every microbatch, from step 80, microbatch 1 on; a step gives nothing of it back; still growing at the end: yes\n"},
		{"late, in the middle of a step", 100, 64, func(step, mb int) int64 { return 1<<30 + 16384*int64(max((step-80)*64+mb-40, 0)) },
			"rank 0 grows by 16.0 KiB with every microbatch, from one of steps 80 to 81 on; a step gives nothing of it back; still growing at the end: yes\n"},
		{"late, in the last step", 100, 64, func(step, mb int) int64 { return 1<<30 + int64(step/99)*16384*int64(mb) },
			"rank 0 grows by 16.0 KiB with every microbatch, from step 99, microbatch 1 on; still growing at the end: yes\n"},
		{"late, in a pipeline that drains", 100, 64, func(step, mb int) int64 { return 5000 + 70_000*int64(min(3, 63-mb)) + int64(step/80)*16384*int64(mb) },
			"rank 0 grows by 16.0 KiB with every microbatch, from step 80, microbatch 1 on; still growing at the end: yes\n"},
		{"a leak that ends within the step", 1, 256, func(_, mb int) int64 { return 5000 + 4096*int64(min(mb, 200)) },
			"rank 0 grows by 4.0 KiB with every microbatch (99 %: 3.7 KiB to 4.0 KiB), from step 0, microbatch 1 on; still growing at the end: no\n"},
		{"jumps late in the only step", 1, 64, func(_, mb int) int64 { return 5000 + 4096*int64(mb/60) },
			"rank 0 ends its steps higher than it begins them, by about 132 B a microbatch: inconclusive, the log is too short to tell growth from chance\n"},
		{"jumps in the last step alone", 2, 64, func(step, mb int) int64 { return 5000 + int64(1-step)*20*int64(mb) + int64(step)*4096*int64(mb/60) }, "nothing grows\n"},
		{"jumps late", 20, 2, func(step, _ int) int64 { return 5000 + 9000*int64(step/18) },
			"rank 0 ends higher than it began, by about 1000 B a step: inconclusive, the log is too short to tell growth from chance\n"},
		{"falls less late", 100, 64, func(step, mb int) int64 { return 1<<30 - int64(mb)*(2-int64(step/80))*mib },
			"rank 0 ends higher than it began, by about 1.3 MiB a step: inconclusive, the log is too short to tell growth from chance\n"},
		{"longer sequences late", 100, 64, func(step, mb int) int64 { return 1<<30 + int64(mb%7)*(1+int64(step/80))*mib }, "nothing grows\n"},
		{"an evaluation between", 100, 64, func(step, mb int) int64 { return 1<<30 + int64(step%10/9)*mib*int64(min(mb, 4)) }, "nothing grows\n"},
		{"late", 100, 2, func(step, _ int) int64 { return 5000 + 300*int64(max(step-80, 0)) },
			"rank 0 grows by 300 B with every step, from step 81 on; within a step it does not; still growing at the end: yes\n"},
		{"longer sequences from the middle on", 100, 2, func(step, _ int) int64 { return 5000 + 9000*int64(step/50) }, "nothing grows\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := minimals(t, test.steps, test.microbatches, test.level)
			out := textOf(t, log)
			require.True(t, strings.HasSuffix(out, "\n\n"+test.want), out)
			require.Equal(t, strings.Contains(test.want, "inconclusive"), strings.Contains(pageOf(t, log), "too short to tell whether it grows"))
		})
	}
}

// Ranks with the same finding share a sentence, and 4,096 microbatches have their own cells.
func TestGrowthOfManyRanks(t *testing.T) {
	log := &memreport.Log{}
	for mb := range 4096 {
		for rank := range 6 {
			leak := int64(0)
			if rank != 3 {
				leak = 240 * int64(max(mb-1000, 0))
			}
			require.NoError(t, log.Add(minimal(2, rank, mb, 1<<20+leak)))
		}
	}
	out := textOf(t, log)
	require.Contains(t, out, "\n\neach of ranks 0-2, 4 and 5 grows by 240 B with every microbatch, from step 2, microbatch 1001 on; still growing at the end: yes\n")
}

// A leak of 1 MiB from microbatch 500 on is found among lengths that vary 200 times as much.
func TestGrowthThroughNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	log := minimals(t, 1, 2048, func(_, mb int) int64 {
		return 1<<30 + random.Int64N(200*mib) + mib*int64(max(mb-500, 0))
	})
	g := log.Summary().Growth
	require.InDelta(t, mib, g.PerMicrobatch, 0.02*mib)
	require.Less(t, g.Low, float64(mib))
	require.Greater(t, g.High, float64(mib))
	require.InDelta(t, 500, g.First.Microbatch, 40)
}

// A leak of 1 MiB that begins late is found among lengths that vary 200 times as much. Without
// the leak no growth is found.
func TestLateGrowthThroughNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	log := minimals(t, 400, 64, func(step, mb int) int64 {
		return 1<<30 + random.Int64N(200*mib) + mib*int64(step/300)*int64(mb)
	})
	g := log.Summary().Growth
	require.InDelta(t, mib, g.PerMicrobatch, 0.1*mib)
	require.InDelta(t, 300, g.First.Step, 3)
	log = minimals(t, 400, 64, func(int, int) int64 { return 1<<30 + random.Int64N(200*mib) })
	require.False(t, log.Summary().Growth.Grows())
}

// For a log with more steps than cells, the start of growth is a range of at most a thirty-second of the log.
func TestLateGrowthOfALongLog(t *testing.T) {
	log := minimals(t, 20_000, 16, func(step, mb int) int64 { return 1<<30 + 240*int64(max((step-15_000)*16+mb, 0)) })
	g := log.Summary().Growth
	require.Equal(t, 240.0, g.PerMicrobatch)
	require.LessOrEqual(t, g.First.Step, int64(15_000))
	require.GreaterOrEqual(t, g.First.LastStep, int64(15_000))
	require.Less(t, g.First.LastStep-g.First.Step, int64(20_000/32))
	out := textOf(t, log)
	require.Contains(t, out, fmt.Sprintf("from one of steps %d to %d on", g.First.Step, g.First.LastStep))
}

// thinned returns a log of one record of eight of the given live bytes.
func thinned(t *testing.T, steps, microbatches int, level func(step, microbatch int) int64) *memreport.Log {
	var out bytes.Buffer
	writer, log := memlog.New(&out), &memreport.Log{}
	writer.Every(8)
	for step := range steps {
		for mb := range microbatches {
			writer.Sample(&memory.Sample{Step: int64(step), Microbatch: mb, Live: level(step, mb)})
		}
	}
	for record, err := range memlog.Read(&out) {
		require.NoError(t, err)
		require.NoError(t, log.Add(&record))
	}
	return log
}

// A thinned log gives the same rate as a whole one, and a range of microbatches for the start of growth. An
// inconclusive rate is per microbatch as well.
func TestThinnedLog(t *testing.T) {
	log := thinned(t, 1, 8*64, func(_, mb int) int64 { return 5000 + 4096*int64((mb/8+1)/16) })
	require.Contains(t, textOf(t, log), "by about 30 B a microbatch: inconclusive")
	rise := log.Page("log").Figures[2].Series[2].Buckets
	require.InDelta(t, 4*4096, rise[1].Sum, 4096, "the line ends near the last record")

	log = thinned(t, 100, 256, func(step, mb int) int64 { return 1<<30 + int64(step/80)*16384*int64(max(mb-84, 0)) })
	s := log.Summary()
	require.EqualValues(t, 3200, s.Records)
	require.EqualValues(t, 249, s.Microbatches)
	require.Equal(t, 16384.0, s.Growth.PerMicrobatch)
	require.EqualValues(t, 80, s.Growth.First.Step)
	require.Equal(t, [2]int{81, 88}, [2]int{s.Growth.First.Microbatch, s.Growth.First.Last})
}

// Late growth in the books has its own rate, not the mean over all earlier steps.
func TestLateGrowthByTheBooks(t *testing.T) {
	log := &memreport.Log{}
	for step := range int64(100) {
		for mb := range 64 {
			excess := 16384 * max((step-80)*64+int64(mb)-9, 0)
			require.NoError(t, log.Add(excessive(step, 0, mb, excess, min(excess, 16384))))
		}
	}
	g := log.Summary().Growth
	require.Equal(t, 16384.0, g.PerMicrobatch)
	require.Equal(t, memreport.At{Step: 80, Microbatch: 10}, memreport.At{Step: g.First.Step, Microbatch: g.First.Microbatch})
}

// excessive is a record of schema 1 with an excess in class Saved.
func excessive(step int64, rank, microbatch int, excess, growth int64) *memlog.Record {
	r := &memlog.Record{Schema: 1}
	r.Step, r.Rank, r.Microbatch, r.Kind = step, rank, microbatch, "B"
	r.Live, r.Peak, r.Reserved, r.Excess, r.Growth = 1000+excess, 1500+excess, 4096, excess, growth
	r.Classes[memory.Resident], r.Classes[memory.Saved] = 1000, excess
	return r
}

// The books determine the rank, the rate, the class and the first microbatch of growth.
func TestGrowthByTheBooks(t *testing.T) {
	log := &memreport.Log{}
	for step := range int64(3) {
		for mb := range 16 {
			for rank := range 2 {
				leak := int64(0)
				if rank == 1 {
					leak = 240
				}
				require.NoError(t, log.Add(excessive(step, rank, mb, leak*int64(max(mb-6, 0)), leak*int64(min(max(mb-6, 0), 1)))))
			}
		}
	}
	s := log.Summary()
	require.Equal(t, 1, *s.GrowthRank)
	require.Equal(t, "books", s.Growth.From)
	require.Equal(t, 240.0, s.Growth.PerMicrobatch)
	require.Equal(t, memreport.At{Step: 0, Microbatch: 7}, memreport.At{Step: s.Growth.First.Step, Microbatch: s.Growth.First.Microbatch})
	require.Equal(t, "saved", s.Growth.Class)
	require.False(t, s.Ranks[0].Growth.Grows())

	// Two microbatches suffice, because the books are exact.
	log = &memreport.Log{}
	require.NoError(t, log.Add(excessive(0, 0, 0, 240, 240)))
	require.NoError(t, log.Add(excessive(0, 0, 1, 480, 240)))
	require.Equal(t, 240.0, log.Summary().Growth.PerMicrobatch)
	require.Zero(t, log.Summary().Growth.First.Microbatch)
}

func planned(rank int, live, livePlanned, peak, peakPlanned int64) *memlog.Record {
	r := excessive(0, rank, 0, 0, 0)
	r.Live, r.Peak, r.Planned, r.LivePlanned, r.PeakPlanned = live, peak, true, livePlanned, peakPlanned
	return r
}

func TestPlannedBesideMeasured(t *testing.T) {
	log := &memreport.Log{}
	require.NoError(t, log.Add(planned(0, 100, 100, 500, 500)))
	require.NoError(t, log.Add(planned(1, 103, 100, 500, 500)))
	require.NoError(t, log.Add(planned(2, 90, 100, 400, 500)))
	out := textOf(t, log)
	require.Equal(t, `3 ranks, 1 step of 1 microbatch, 3 records in schema 1

  rank  level   peak  planned  reserved  growth per microbatch
     0  100 B  500 B    500 B   4.0 KiB                    0 B
     1  103 B  500 B    500 B   4.0 KiB                    0 B
     2   90 B  400 B    500 B   4.0 KiB                    0 B

nothing grows
rank 1 had up to 3 B more than planned; peak 500 B, planned 500 B
rank 2 stays within its plan: peak 400 B of 500 B
measured as planned, to the byte, on 1 of 3 ranks
`, out)
}

// The classes at the peak are from its record, and separate from the classes at the highest
// level. Without them a log has only the level's.
func TestPeakByClass(t *testing.T) {
	log := &memreport.Log{}
	for i, peak := range []int64{1500, 1900, 1700} {
		r := excessive(0, 0, i, 0, 0)
		r.Peak = peak
		r.PeakClasses[memory.Resident], r.PeakClasses[memory.Workspace] = 1000, peak-1000
		require.NoError(t, log.Add(r))
	}
	require.Equal(t, map[string]int64{"resident": 1000, "workspace": 900}, log.Summary().Ranks[0].PeakClasses)
	require.Equal(t, map[string]int64{"resident": 1000}, log.Summary().Ranks[0].Classes)
	page := pageOf(t, log)
	require.Contains(t, page, "at the peak</th>")
	require.Contains(t, page, "<td>workspace</td>")

	log = &memreport.Log{}
	require.NoError(t, log.Add(excessive(0, 0, 0, 0, 0)))
	require.Empty(t, log.Summary().Ranks[0].PeakClasses)
	page = pageOf(t, log)
	require.NotContains(t, page, "at the peak</th>")
	require.Contains(t, page, "at the highest level after a microbatch")
}

func TestOwners(t *testing.T) {
	log := minimals(t, 1, 1, func(int, int) int64 { return 1 })
	for i := range 5000 {
		require.NoError(t, log.Add(&memlog.Record{Schema: 1, Owner: &memory.Info{Name: fmt.Sprint("name\x1b", i%4990), Class: memory.Saved, Bytes: 10}}))
	}
	require.NoError(t, log.Add(&memlog.Record{Schema: 1, Owner: &memory.Info{Name: strings.Repeat("x", 1<<16), Class: memory.FP8, Bytes: 3000}}))
	s := log.Summary()
	require.Len(t, s.Owners, 4098, "4096 names and one for all others, by class")
	require.Equal(t, memreport.Owner{Name: "(other names)", Class: "saved", Bytes: 8940, Buffers: 894}, s.Owners[0])
	out := textOf(t, log)
	require.Contains(t, out, "Live when the log was dumped, 51.8 KiB (53,000 bytes):\n")
	require.NotContains(t, out, "\x1b")
	require.Less(t, len(out), 2000)
}

func TestMostRanks(t *testing.T) {
	log := &memreport.Log{}
	for rank := range memreport.MaxRanks {
		require.NoError(t, log.Add(minimal(0, rank, 0, 1)))
	}
	require.ErrorIs(t, log.Add(minimal(0, memreport.MaxRanks, 0, 1)), memreport.ErrRanks)
	require.NoError(t, log.Add(minimal(0, 5, 1, 1)), "ranks that are known go on")
	out := textOf(t, log)
	require.Less(t, strings.Count(out, "\n"), 50)
}

// The size of the page does not depend on the length of the log, and the page shows the highest
// record.
func TestPageIsBounded(t *testing.T) {
	log := &memreport.Log{}
	for i := range 200_000 {
		r := excessive(int64(i/8192), i%2, i/2%4096, 0, 0)
		if i == 77_777 {
			r.Live, r.Peak = 987_654_321, 987_654_321
		}
		require.NoError(t, log.Add(r))
	}
	text := pageOf(t, log)
	require.Less(t, len(text), 1<<20)
	require.Contains(t, text, "987,654,321 bytes, rank 1 at step 9, microbatch 2024")
	require.Contains(t, text, "a &lt;log&gt;")
	for _, not := range []string{"NaN", "Inf", "http", "src="} {
		require.NotContains(t, text, not)
	}
}

// Every kind of log produces a page and JSON.
func TestPageOfAnything(t *testing.T) {
	leaking := &memreport.Log{}
	for mb := range 20 {
		require.NoError(t, leaking.Add(excessive(0, 0, mb, int64(mb), 1)))
	}
	full := &memreport.Log{}
	require.NoError(t, full.Add(planned(3, 1, 2, 3, 4)))
	require.NoError(t, full.Add(minimal(0, 5, 0, 7)))
	require.NoError(t, full.Add(&memlog.Record{Schema: 1, Owner: &memory.Info{Name: "o", Bytes: 1}}))
	for name, log := range map[string]*memreport.Log{
		"empty": {}, "one": minimals(t, 1, 1, func(int, int) int64 { return 0 }), "leaking": leaking, "mixed": full,
		"steps": minimals(t, 30, 3, func(step, _ int) int64 { return 10 * int64(step) }),
	} {
		t.Run(name, func(t *testing.T) {
			page := pageOf(t, log)
			require.NotContains(t, page, "NaN")
			_, err := json.Marshal(log.Summary())
			require.NoError(t, err)
		})
	}
}

func TestCompare(t *testing.T) {
	a, b := &memreport.Log{}, &memreport.Log{}
	for i := range 20 {
		require.NoError(t, a.Add(excessive(0, i%2, i/2, 0, 0)))
	}
	for mb := range 20 {
		require.NoError(t, b.Add(minimal(0, 1, mb, int64(300*mb))))
		require.NoError(t, b.Add(minimal(0, 2, mb, 50)))
	}
	var out strings.Builder
	require.NoError(t, memreport.Compare(&out, a.Summary(), b.Summary()))
	require.Equal(t, `  rank  records A   B   peak A        B  reserved A        B  growth A      B
     0         10   -  1.5 KiB        -     4.0 KiB        -       0 B      -
     1         10  20  1.5 KiB  5.6 KiB     4.0 KiB  5.6 KiB       0 B  300 B
     2          -  20        -     64 B           -     70 B         -    0 B
`, out.String())
}

// TestFixtures compares the summary of weir mem log --json with the summaries of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "summary-%d.json", Mark: "\"schema\": %d", Number: 2,
		Write: func(t *testing.T) []byte {
			return testkit.Filled[memreport.Summary](t, new(memreport.Log).Summary().Schema)
		},
	}.Test(t)
}

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

// The summary, the page and the comparison show far memory if the log has it, and a peak that differs from the
// plan.
func TestFarMemory(t *testing.T) {
	near, away := &memreport.Log{}, &memreport.Log{}
	for mb := range 4 {
		r := excessive(1, 0, mb, 0, 0)
		r.Planned, r.LivePlanned, r.PeakPlanned = true, r.Live, r.Peak
		require.NoError(t, near.Add(r))
		r.Far, r.FarPeak, r.FarPlanned = 1024, int64(1024*(mb+1)), int64(2048*(mb+1))
		require.NoError(t, away.Add(r))
	}
	require.NotContains(t, textOf(t, near), "far")
	require.Contains(t, textOf(t, away), "far peak")
	require.Contains(t, textOf(t, away), "rank 0 had 4.0 KiB (4,096 bytes) in far memory at its peak, planned 8.0 KiB (8,192 bytes)\n")
	require.Contains(t, away.Page("log").Facts, report.Fact{Label: "far peak", Value: "4.0 KiB", Note: "in far memory; planned 8.0 KiB (8,192 bytes)"})
	var out strings.Builder
	require.NoError(t, memreport.Compare(&out, near.Summary(), away.Summary()))
	require.Equal(t, `  rank   peak A        B  reserved A        B  growth A    B  far A        B
     0  1.5 KiB  1.5 KiB     4.0 KiB  4.0 KiB       0 B  0 B    0 B  4.0 KiB
`, out.String())
}

// The records of FP8 tensors are added up over steps, by role, in text, page and JSON.
func TestFP8(t *testing.T) {
	log := &memreport.Log{}
	for step := range int64(3) {
		for _, f := range []memlog.FP8{
			{Step: step, Role: "weight", Tensors: 4, LeastScale: 1024, GreatestScale: 4096},
			{Step: step, Role: "grad_output\x1b", Tensors: 4, Frozen: int(step) / 2, NonFinite: uint64(step) / 2, Saturated: 1000, Underflowed: uint64(step), LeastScale: float64(2 - step), GreatestScale: 8},
		} {
			require.NoError(t, log.Add(&memlog.Record{Schema: 1, FP8: &f}))
		}
		require.NoError(t, log.Add(planned(0, 400, 400, 500, 500)))
	}
	s := log.Summary()
	require.EqualValues(t, 3, s.Records, "these lines are of no microbatch")
	require.Equal(t, []memreport.FP8{
		{Role: "grad_output\x1b", Steps: 3, Tensors: 4, FrozenIn: 1, NonFinite: 1, Saturated: 3000, Underflowed: 3, LeastScale: 1, GreatestScale: 8},
		{Role: "weight", Steps: 3, Tensors: 4, LeastScale: 1024, GreatestScale: 4096},
	}, s.FP8)

	out := textOf(t, log)
	require.Contains(t, out, `
Elements in FP8, by role:
  role             tensors  saturated  became zero  not finite  in steps  scales
  grad_output\x1b  4        3,000      3            1           1 of 3    1 to 8
  weight           4        0          0            0           0 of 3    1024 to 4096
`)
	page := pageOf(t, log)
	require.Contains(t, page, "Elements in FP8, by role")
	require.Contains(t, page, "1024 to 4096")
}

// A log may have any number of roles. The summary keeps a limited number, and adds up the others.
func TestRolesAreBounded(t *testing.T) {
	log := &memreport.Log{}
	for i := range 1000 {
		require.NoError(t, log.Add(&memlog.Record{Schema: 1, FP8: &memlog.FP8{Role: fmt.Sprint(i, strings.Repeat("x", 1000)), Saturated: 1}}))
	}
	roles := log.Summary().FP8
	require.Len(t, roles, 16)
	require.Equal(t, memreport.FP8{Role: "(other names)", Steps: 985, Saturated: 985}, roles[0])
}

// The memory for a log does not grow with its records: there are ten million with -long, and rank
// 3 leaks 16 bytes a microbatch from step 30,000 on.
func TestMemoryIsBounded(t *testing.T) {
	testkit.Slow(t)
	steps, begin := 1_000, 750
	if *testkit.Long {
		steps, begin = 39_063, 30_000
	}
	lines, out := io.Pipe()
	go func() {
		w, leak := bufio.NewWriter(out), 0
		for step := range steps {
			for mb := range 64 {
				if step >= begin {
					leak += 16
				}
				for rank := range 4 {
					fmt.Fprintf(w, `{"step":%d,"rank":%d,"microbatch":%d,"allocated":%d,"reserved":2000000000,"peak":1900000000}`+"\n", step, rank, mb, 1<<30+leak*(rank/3))
				}
			}
		}
		out.CloseWithError(w.Flush())
	}()
	log := &memreport.Log{}
	var heap runtime.MemStats
	for record, err := range memlog.Read(lines) {
		require.NoError(t, err)
		require.NoError(t, log.Add(&record))
		if log.Records()%250_000 == 0 {
			runtime.ReadMemStats(&heap)
			require.Less(t, heap.HeapAlloc, uint64(32<<20), "after %d records", log.Records())
		}
	}
	s := log.Summary()
	require.EqualValues(t, steps*64*4, s.Records)
	require.Equal(t, 3, *s.GrowthRank)
	require.Equal(t, 16.0, s.Growth.PerMicrobatch)
	require.LessOrEqual(t, s.Growth.First.Step, int64(begin))
	require.GreaterOrEqual(t, s.Growth.First.LastStep, int64(begin))
}
