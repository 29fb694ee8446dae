package memlog_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
)

// TestFixtures compares a log that has every kind of line with those that earlier versions wrote.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "memory-%d.jsonl", Mark: "{\"schema\":%d,\"time\"", Number: 1, Remedy: "the version of Weir that wrote it",
		Write: func(t *testing.T) []byte {
			var text bytes.Buffer
			log, s := memlog.New(&text), full()
			log.Sample(&s)
			s.Replica, s.Replicated, s.Planned, s.LivePlanned, s.PeakPlanned, s.FarPeak, s.FarPlanned, s.PeakClasses = 1, true, true, 13, 14, 15, 16, s.Classes
			s.Leak = memory.Leak{Stage: 3, Name: "block", Call: "I", Class: memory.Carry}
			log.Sample(&s)
			log.PeakOwner(&memory.PeakOwner{Step: 7, Rank: 2, Name: "saved", Class: memory.Saved, Bytes: 4096, Buffers: 4, Last: 3})
			log.FP8(&memlog.FP8{Step: 7, Role: "input", Tensors: 8, Frozen: 1, NonFinite: 2, Saturated: 3, Underflowed: 4, LeastScale: 0.5, GreatestScale: 448})
			require.NoError(t, memlog.Dump(&text, nil, slices.Values([]memory.Info{{Name: "stage", Class: memory.Saved, Bytes: 4096, Plain: 2, Held: 1, Serial: 17}})))
			return text.Bytes()
		},
		Read: func(text []byte) error {
			for _, err := range memlog.Read(bytes.NewReader(text)) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}.Test(t)
}
