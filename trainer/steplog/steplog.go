package steplog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// Step logs the result of a step, and how long it took: at Info, or at Warn if there was no
// update or the growth of memory is not 0.
func Step(ctx context.Context, logger *slog.Logger, result *runner.Result, took time.Duration) {
	level := slog.LevelInfo
	if result.Outcome != loss.Stepped || result.Growth.Bytes != 0 {
		level = slog.LevelWarn
	}
	if !logger.Enabled(ctx, level) {
		return
	}
	losses := make([]slog.Attr, 0, len(result.Losses))
	for i := range result.Losses {
		if l := &result.Losses[i]; l.Present {
			losses = append(losses, slog.Float64(l.Name, l.Value))
		}
	}
	logger.LogAttrs(ctx, level, "step",
		slog.Int64("step", result.Step),
		slog.String("outcome", result.Outcome.String()),
		slog.GroupAttrs("loss", losses...),
		slog.Float64("gradient_norm", result.GradNorm),
		slog.Int("microbatches", result.Microbatches),
		slog.Duration("took", took),
		slog.Int64("peak_bytes", result.Peak),
		slog.Int64("live_bytes", result.Live),
		slog.String("growth_per_microbatch", result.Growth.String()),
	)
}

// Microbatches returns a hook (runner.Hooks.Microbatch) that logs one in `every` microbatches
// of all ranks, at Debug, and each microbatch whose growth of memory is not 0, at Warn. All ranks
// may call the hook concurrently.
func Microbatches(logger *slog.Logger, every int) func(*memory.Sample) {
	var seen atomic.Int64
	return func(s *memory.Sample) {
		ctx, level := context.Background(), slog.LevelDebug
		due := (seen.Add(1)-1)%int64(max(every, 1)) == 0
		if s.Growth != 0 {
			due, level = true, slog.LevelWarn
		}
		if !due || !logger.Enabled(ctx, level) {
			return
		}
		logger.LogAttrs(ctx, level, "microbatch",
			slog.Int64("step", s.Step),
			slog.Int("rank", s.Rank),
			slog.Int("microbatch", s.Microbatch),
			slog.Int64("live_bytes", s.Live),
			slog.Int64("peak_bytes", s.Peak),
			slog.Int64("reserved_bytes", s.Reserved),
			slog.Int64("growth_bytes", s.Growth),
		)
	}
}
