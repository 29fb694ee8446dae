package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weir-ml/weir/trainer/live"
	"github.com/weir-ml/weir/trainer/tensorboard"
)

// watch is what others see of a run in progress. Nil parts are off.
type watch struct {
	live   *live.Server
	events *tensorboard.Writer
	file   *os.File
}

// openWatch begins what the flags ask for.
func openWatch(o *options) (w watch, err error) {
	if o.serve != "" {
		if w.live, err = live.Listen(o.serve); err != nil {
			return w, fmt.Errorf("-serve: %w", err)
		}
	}
	if o.tensorboard != "" {
		if w.events, w.file, err = tensorboard.Create(o.tensorboard, time.Now()); err != nil {
			return w, errors.Join(fmt.Errorf("-tensorboard: %w", err), w.Close())
		}
	}
	return w, nil
}

// step shows a step of t.
func (w *watch) step(t *trainer, l line) error {
	if w.live != nil {
		err := w.live.Update(func(to io.Writer) error {
			page := t.metrics.Page()
			page.Title, page.Subtitle = fmt.Sprintf("Step %d of %d", t.done, t.opts.steps), t.data.name+": "+t.opts.describe()
			page.Footer = "This page is of the run in progress, and loads again by itself."
			return page.Write(to)
		})
		if err != nil {
			return err
		}
	}
	if w.events == nil {
		return nil
	}
	values := []tensorboard.Scalar{
		{Tag: "loss/train", Value: l.nats}, {Tag: "gradient/norm", Value: l.norm}, {Tag: "learning_rate", Value: l.rate},
		{Tag: "memory/growth", Value: float64(t.metrics.Growth())}, {Tag: "speed/seconds", Value: l.took.Seconds()},
	}
	if l.score.Known {
		values = append(values, tensorboard.Scalar{Tag: "loss/held out", Value: l.score.Loss})
	}
	return w.events.Scalars(int64(t.done), time.Now(), values...)
}

// Close ends it all.
func (w *watch) Close() error {
	var faults []error
	if w.live != nil {
		faults = append(faults, w.live.Close())
	}
	if w.file != nil {
		faults = append(faults, w.file.Close())
	}
	*w = watch{}
	return errors.Join(faults...)
}
