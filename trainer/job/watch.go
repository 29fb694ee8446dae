package job

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weir-ml/weir/trainer/live"
	"github.com/weir-ml/weir/trainer/metrics"
	"github.com/weir-ml/weir/trainer/tensorboard"
)

// Watch shows a run in progress: a live page, and events for TensorBoard. The zero Watch shows
// nothing.
type Watch struct {
	live   *live.Server
	events *tensorboard.Writer
	file   *os.File
}

// OpenWatch starts the outputs of -serve and -tensorboard.
func (o *Options) OpenWatch() (w Watch, err error) {
	if o.Serve != "" {
		if w.live, err = live.Listen(o.Serve); err != nil {
			return w, fmt.Errorf("-serve: %w", err)
		}
	}
	if o.TensorBoard != "" {
		if w.events, w.file, err = tensorboard.Create(o.TensorBoard, time.Now()); err != nil {
			return w, errors.Join(fmt.Errorf("-tensorboard: %w", err), w.Close())
		}
	}
	return w, nil
}

// URL returns the address of the live page, or "" without one.
func (w *Watch) URL() string {
	if w.live == nil {
		return ""
	}
	return w.live.URL()
}

// Step shows a step. steps is the total number of steps, and subtitle is the page's subtitle.
func (w *Watch) Step(run *metrics.Recorder, l Line, steps int, subtitle string) error {
	if w.live != nil {
		err := w.live.Update(func(to io.Writer) error {
			page := run.Page()
			page.Title, page.Subtitle = fmt.Sprintf("Step %d of %d", l.Step, steps), subtitle
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
		{Tag: "loss/train", Value: l.Loss}, {Tag: "gradient/norm", Value: l.Norm}, {Tag: "learning_rate", Value: l.LearningRate},
		{Tag: "memory/growth", Value: float64(run.Growth())}, {Tag: "speed/seconds", Value: l.Took.Seconds()},
	}
	if l.Score.Known {
		values = append(values, tensorboard.Scalar{Tag: "loss/held out", Value: l.Score.Loss})
	}
	return w.events.Scalars(int64(l.Step), time.Now(), values...)
}

// Close ends both outputs.
func (w *Watch) Close() error {
	var faults []error
	if w.live != nil {
		faults = append(faults, w.live.Close())
	}
	if w.file != nil {
		faults = append(faults, w.file.Close())
	}
	*w = Watch{}
	return errors.Join(faults...)
}
