package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memlog"
	"github.com/weir-ml/weir/schedule/runner"
)

// measured is what a run without one guard comes to. Sizes are bytes.
type measured struct {
	guard
	Microbatches int   `json:"microbatches"`
	Growth       int64 `json:"growth_per_microbatch"` // where the leak is tolerated
	Peak         int64 `json:"peak"`                  // likewise
	LiveBefore   int64 `json:"live_before"`
	LiveAfter    int64 `json:"live_after"` // likewise
	// Reported says on which microbatch the step ended that tolerates no leak, and
	// Error with what; nil where nothing was to report. Everything that it had kept was taken back:
	// LiveAfterError is what was live then.
	Reported       *int   `json:"reported_on_microbatch"`
	Error          string `json:"error,omitempty"`
	LiveAfterError int64  `json:"live_after_error"`
	// DryRun is what Record says before the first step.
	DryRun string `json:"dry_run,omitempty"`
	Log    string `json:"log,omitempty"`
}

// measure runs the model without a guard: dry, as it is, and tolerating the leak.
func measure(ctx context.Context, removed, microbatches int, folder string) (m measured, err error) {
	m = measured{guard: guards[removed], Microbatches: microbatches}
	if m.DryRun, err = dryRun(ctx, removed); err != nil {
		return m, err
	}
	if err := m.strict(ctx, removed); err != nil {
		return m, err
	}
	if folder == "" {
		return m, m.tolerant(ctx, removed, io.Discard)
	}
	m.Log = filepath.Join(folder, m.Name+".jsonl")
	file, err := os.Create(m.Log)
	if err != nil {
		return m, err
	}
	log := bufio.NewWriter(file)
	return m, errors.Join(m.tolerant(ctx, removed, log), log.Flush(), file.Close())
}

// strict runs a step that ends at a leak.
func (m *measured) strict(ctx context.Context, removed int) error {
	return onHost(removed, func(dev *kernels.Host, model *model) error {
		before := dev.Live()
		run, err := runner.New(model.config())
		if err != nil {
			return err
		}
		_, err = run.Step(ctx, m.Microbatches, model.entries())
		if leak, ok := errors.AsType[*batchctx.LeakError](err); ok {
			m.Reported, m.Error, err = &leak.Microbatch, err.Error(), nil
		}
		m.LiveBefore, m.LiveAfterError = before, dev.Live()
		return errors.Join(err, run.Close())
	})
}

// tolerant runs a step that goes on, and writes its memory log.
func (m *measured) tolerant(ctx context.Context, removed int, w io.Writer) error {
	return onHost(removed, func(dev *kernels.Host, model *model) error {
		log := memlog.New(w)
		cfg := model.config()
		cfg.Memory.TolerateLeaks = true
		cfg.Hooks.Microbatch = func(s *memory.Sample) { log.Sample(s) }
		cfg.Hooks.Peak = func(_ int, owners iter.Seq[memory.PeakOwner]) {
			for o := range owners {
				log.PeakOwner(&o)
			}
		}
		run, err := runner.New(cfg)
		if err != nil {
			return err
		}
		result, err := run.Step(ctx, m.Microbatches, model.entries())
		if err == nil {
			m.Growth, m.Peak, m.LiveAfter = result.Growth.Bytes, result.Peak, dev.Live()
		}
		return errors.Join(err, log.Err(), run.Close())
	})
}

// dryRun returns what Record says about the model, "" where it has nothing to say.
func dryRun(ctx context.Context, removed int) (string, error) {
	host, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return "", err
	}
	dev := kernels.NewNull(host)
	defer dev.Close() // Nothing was computed on it.
	model, err := newModel(dev, removed)
	if err != nil {
		return "", err
	}
	defer model.inner.Close() // With its device.
	_, err = runner.Record(ctx, model.config(),
		runner.Shape[kernels.Buffer]{Name: "whole", Source: model.entries()})
	if errors.Is(err, runner.ErrUnended) {
		return err.Error(), nil
	}
	return "", err
}

// onHost calls next with a fresh device and a model on it, and closes both.
func onHost(removed int, next func(*kernels.Host, *model) error) error {
	dev, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return err
	}
	model, err := newModel(dev, removed)
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	if err := next(dev, model); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", guards[removed].Name, err), dev.Close())
	}
	return errors.Join(model.inner.Close(), dev.Close())
}
