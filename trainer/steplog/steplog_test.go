package steplog_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/steplog"
)

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func Example() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	steplog.Step(context.Background(), logger, &runner.Result{
		Step: 7, Microbatches: 4096, Peak: 8192, Live: 4096, GradNorm: 0.5,
		Losses: []loss.Value{{Name: "error", Value: 0.25, Present: true}},
		Growth: memory.Growth{Audited: true},
	}, 30*time.Millisecond)
	// Output:
	// level=INFO msg=step step=7 outcome=stepped loss.error=0.25 gradient_norm=0.5 microbatches=4096 took=30ms peak_bytes=8192 live_bytes=4096 growth_per_microbatch="0 bytes"
}

func TestLevels(t *testing.T) {
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	said := func() string { defer out.Reset(); return out.String() }
	steplog.Step(t.Context(), logger, &runner.Result{Outcome: loss.Skipped, Losses: []loss.Value{{Name: "absent"}}}, 0)
	text := said()
	require.Contains(t, text, "level=WARN msg=step step=0 outcome=skipped gradient_norm=0")
	require.Contains(t, text, `growth_per_microbatch="not audited"`)
	require.NotContains(t, text, "absent")
	steplog.Step(t.Context(), logger, &runner.Result{Growth: memory.Growth{Bytes: 16, Audited: true}}, 0)
	require.Contains(t, said(), "level=WARN")

	quiet := steplog.Microbatches(logger, 1)
	quiet(&memory.Sample{Microbatch: 1})
	require.Empty(t, said(), "Debug is off")
	quiet(&memory.Sample{Rank: 2, Microbatch: 3, Growth: 16})
	require.Contains(t, said(), "level=WARN msg=microbatch step=0 rank=2 microbatch=3 ")
	require.Zero(t, testing.AllocsPerRun(100, func() { quiet(&memory.Sample{}) }))
}

func TestEvery(t *testing.T) {
	var out bytes.Buffer
	hook := steplog.Microbatches(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), 4)
	for i := range 10 {
		hook(&memory.Sample{Microbatch: i, Live: 64})
	}
	require.Equal(t, 3, strings.Count(out.String(), "msg=microbatch"))
	for _, want := range []string{"microbatch=0 live_bytes=64", "microbatch=4 ", "microbatch=8 "} {
		require.Contains(t, out.String(), want)
	}
}
