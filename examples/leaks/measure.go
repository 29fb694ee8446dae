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

// measured is the result of runs without one guard. Sizes are in bytes.
type measured struct {
	guard
	Microbatches int   `json:"microbatches"`
	Growth       int64 `json:"growth_per_microbatch"` // with leaks tolerated
	Peak         int64 `json:"peak"`                  // with leaks tolerated
	LiveBefore   int64 `json:"live_before"`
	LiveAfter    int64 `json:"live_after"` // with leaks tolerated
	// Reported is the microbatch on which the step without tolerance ended, and Error its
	// error; nil if there was nothing to report. All leaked buffers were reclaimed:
	// LiveAfterError is the live memory afterwards.
	Reported       *int   `json:"reported_on_microbatch"`
	Error          string `json:"error,omitempty"`
	LiveAfterError int64  `json:"live_after_error"`
	// DryRun is the error of Record before the first step.
	DryRun string `json:"dry_run,omitempty"`
	Log    string `json:"log,omitempty"`
}

// measure runs the model without a guard: dry, with the default, and with the leak tolerated.
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

// tolerant runs a step that tolerates the leak, and writes its memory log.
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

// dryRun returns the error of Record for the model, or "".
func dryRun(ctx context.Context, removed int) (string, error) {
	host, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		return "", err
	}
	dev := kernels.NewNull(host)
	defer dev.Close() // nothing was computed on it
	model, err := newModel(dev, removed)
	if err != nil {
		return "", err
	}
	defer model.inner.Close() // together with its device
	_, err = runner.Record(ctx, model.config(),
		runner.Shape[kernels.Buffer]{Name: "whole", Source: model.entries()})
	if errors.Is(err, runner.ErrUnended) {
		return err.Error(), nil
	}
	return "", err
}

// onHost calls next with a new device and a model on it, and closes both.
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
