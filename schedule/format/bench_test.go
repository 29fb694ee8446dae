package format_test

import (
	"io"
	"strings"
	"testing"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/format"
)

// BenchmarkFormats writes and reads a plan of 16 ranks, two stages each, and 4,096
// microbatches: 262,144 actions.
func BenchmarkFormats(b *testing.B) {
	p, err := schedule.Interleaved(schedule.Params{Placement: schedule.Looped(16, 32), Microbatches: 4096})
	if err != nil {
		b.Fatal(err)
	}
	list := *p
	list.Programs = nil
	total := 0
	for rank := range p.Programs {
		all := actions(p, rank)
		total += len(all)
		list.Programs = append(list.Programs, []schedule.Segment{{Body: all, Repeat: 1}})
	}
	for _, f := range []format.Format{format.Text, format.Compute, format.Order, format.JSON} {
		text := written(b, &list, f)
		b.Run("write/"+f.String(), func(b *testing.B) {
			for b.Loop() {
				if err := format.Write(io.Discard, &list, f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(total), "ns/action")
		})
		b.Run("read/"+f.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := format.Read(strings.NewReader(text), format.Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(total), "ns/action")
		})
	}
}
