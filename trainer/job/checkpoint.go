package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/outfile"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// keyFlag followed by a name is the key of a flag in the metadata of a checkpoint.
const keyFlag = "train.flag."

// checkpointEvery parses the interval between two checkpoints.
func (o *Options) checkpointEvery(text string) error {
	steps, noSteps := strconv.ParseInt(text, 10, 64)
	every, noTime := time.ParseDuration(text)
	switch {
	case noSteps == nil && steps > 0:
		o.Saver.Steps, o.Saver.Every = steps, 0
	case noTime == nil && every > 0:
		o.Saver.Steps, o.Saver.Every = 0, every
	default:
		return errors.New("give steps, such as 100, or a time, such as 10m")
	}
	return nil
}

// ErrForeign is returned for a checkpoint written by another program.
var ErrForeign = errors.New("is not a checkpoint of this program: name one that -checkpoint wrote")

// OpenCheckpoint opens the newest complete checkpoint of -resume, and sets the deciding flags to
// its values. A given flag with another value is an error, unless it is in free. Flags that the
// checkpoint lacks take the values of older. The checkpoint is nil without -resume, and if the
// run has written none yet; passed explains why newer ones were skipped. The caller closes it.
func (o *Options) OpenCheckpoint(deciding, free []string, older map[string]string) (c *checkpoint.Checkpoint, passed, err error) {
	if o.Resume == "" {
		return nil, nil, nil
	}
	c, passed, err = checkpoint.Newest(o.Resume)
	if errors.Is(err, checkpoint.ErrNone) && o.Checkpoint != "" && filepath.Clean(o.Resume) == filepath.Clean(o.Checkpoint) {
		return nil, nil, nil // the run begins; if it is killed, the same command continues it
	}
	if errors.Is(err, checkpoint.ErrNone) {
		return nil, nil, fmt.Errorf("-resume: %s has no checkpoint: name a folder that -checkpoint has written, or give it as -checkpoint too, to begin in it: %w", o.Resume, outfile.Plain(err))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("-resume: %w", outfile.Plain(err))
	}
	if err := o.setFlags(c, deciding, free, older); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("-resume: %s %w", o.Resume, err), c.Close())
	}
	return c, passed, nil
}

// othersCheckpoints returns an error if the folder of -checkpoint has checkpoints of an earlier
// run that this run does not continue: it would start below their steps, and remove some of them.
func (o *Options) othersCheckpoints() error {
	if o.Checkpoint == "" {
		return nil
	}
	if from, err := os.Stat(o.Resume); err == nil { // the folder itself, or a checkpoint in it
		for _, path := range []string{o.Checkpoint, filepath.Join(o.Checkpoint, filepath.Base(o.Resume))} {
			if own, err := os.Stat(path); err == nil && os.SameFile(from, own) {
				return nil
			}
		}
	}
	all, err := checkpoint.All(o.Checkpoint)
	if err != nil || len(all) == 0 {
		return nil // writing to the folder reports its errors
	}
	return fmt.Errorf("%s has checkpoints of an earlier run, up to %s: give -resume %[1]s to go on with it, or name another folder", o.Checkpoint, filepath.Base(all[0]))
}

// setFlags sets the deciding flags to the values of a checkpoint.
func (o *Options) setFlags(c *checkpoint.Checkpoint, deciding, free []string, older map[string]string) error {
	for _, name := range deciding {
		value, ok := c.Metadata[keyFlag+name]
		if before, knows := older[name]; !ok && knows {
			value, ok = before, true
		}
		switch {
		case !ok, !o.given[name] && o.FlagSet.Set(name, value) != nil:
			return ErrForeign
		case o.given[name] && o.Value(name) != value && !slices.Contains(free, name):
			return fmt.Errorf("was trained with -%s %s, not %s: leave -%s out, or start without -resume", name, value, o.Value(name), name)
		}
	}
	return nil
}

// Due reports whether a checkpoint is written after a step: the leading process decides.
func (o *Options) Due(ctx context.Context, w *World, step int64, last bool) (bool, error) {
	if o.Checkpoint == "" {
		return false, nil
	}
	return w.agree(ctx, o.Saver.Due(step) || last)
}

// Save writes a checkpoint with the deciding flags, and removes expired ones. In a job it is
// called within Fetching.
func (o *Options) Save(state checkpoint.State, deciding []string, tensors ...safetensors.Tensor) error {
	for _, name := range deciding {
		state.Metadata[keyFlag+name] = o.Value(name)
	}
	o.Saver.Dir = o.Checkpoint
	return outfile.Failed(o.Checkpoint, o.Saver.Save(state, tensors...))
}

// Stored returns tensors in the form of a checkpoint, which stores only the first of consecutive
// tensors with the same name.
func Stored(tensors []Tensor) (stored []safetensors.Tensor) {
	last := ""
	for _, t := range tensors {
		if t.Name != last {
			stored = append(stored, safetensors.Load(t.Name, t.Shape, t.read))
		}
		last = t.Name
	}
	return stored
}

// Restore sets tensors from a checkpoint.
func Restore(c *checkpoint.Checkpoint, tensors []Tensor) error {
	for _, t := range tensors {
		values := make([]float32, t.Buffer.N)
		if err := checkpoint.Read(c, t.Name, t.Shape, values); err != nil {
			return err
		}
		if err := t.Device.WriteFloat32(t.Buffer, values); err != nil {
			return err
		}
	}
	return nil
}
