package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/outfile"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// A checkpoint holds the weights under their names, the moments of AdamW under
// their names with a prefix, and in its metadata which text the weights saw, and the flags
// that decide what the next step does.
const (
	firstMoment  = "adamw.m."
	secondMoment = "adamw.v."
	fp8Scales    = "fp8.scales" // of a model in FP8: what transformer.Model.MarshalScales gives

	keySteps = "train.steps_done" // of the checkpoints in one file that this program once wrote
	keyData  = "train.data_sha256"
	keyFlag  = "train.flag."
)

// deciding are the flags that change the weights of a run. The others, such as
// -ranks, -plan and -stages, do not, or with a plan whose backward does not ascend
// only in their last bits.
var deciding = []string{
	"width", "layers", "heads", "tied", "seq", "microbatches", "steps", "seed", "dropout", "lr", "decay", "warmup", "clip",
	"fp8", "fp8-attention", "products", "tokens", "vocabulary",
}

// older are those that a checkpoint may lack, with what it then was trained with.
var older = map[string]string{"fp8": float32s, "fp8-attention": "false", "products": products[0], "tokens": "", "vocabulary": "256"}

// resume opens the checkpoint of -resume and sets the flags that decide to its own. One that
// was given and says otherwise is an error, but for -steps and for -products, which another machine
// may not have. It returns nil without -resume,
// and where the run has written no checkpoint yet; the caller closes what it returns.
func (t *trainer) resume() (c *checkpoint.Checkpoint, err error) {
	o, path := t.opts, t.opts.resume
	if path == "" {
		return nil, nil
	}
	c, t.passed, err = checkpoint.Newest(path)
	if errors.Is(err, checkpoint.ErrNone) && o.checkpoint != "" && filepath.Clean(path) == filepath.Clean(o.checkpoint) {
		return nil, nil // The run begins, and the same command goes on with it when it was killed.
	}
	if err != nil {
		return nil, fmt.Errorf("-resume: %w", plain(err))
	}
	defer func() {
		if err != nil {
			c, err = nil, errors.Join(err, c.Close())
		}
	}()
	notOurs := fmt.Errorf("-resume: %s is not a checkpoint of this program: name one that -checkpoint wrote", path)
	if steps, old := c.Metadata[keySteps]; old {
		if c.Step, err = strconv.ParseInt(steps, 10, 32); err != nil {
			return c, notOurs
		}
	}
	for _, name := range deciding {
		value, ok := c.Metadata[keyFlag+name]
		if before, knows := older[name]; !ok && knows {
			value, ok = before, true
		}
		if !ok {
			return c, notOurs
		}
		if !o.given[name] {
			if o.set.Set(name, value) != nil {
				return c, notOurs
			}
		} else if given := o.set.Lookup(name).Value.String(); given != value && name != "steps" && name != "products" {
			return c, fmt.Errorf("-resume: %s was trained with -%s %s, not %s: leave -%s out, or start without -resume", path, name, value, given, name)
		}
	}
	if _, cuda, _ := o.cudaNumber(); !cuda && o.products != products[0] {
		return c, fmt.Errorf("-resume: %s was trained with -products %s, which -device cuda has: give -products %s to go on without", path, o.products, products[0])
	}
	if c.Step >= int64(o.steps) && (c.Step > int64(o.steps) || o.resume != o.checkpoint) { // else the same command has finished before
		return c, fmt.Errorf("-resume: %s has seen all %d steps: give more with -steps", path, c.Step)
	}
	t.first, t.done = int(c.Step), int(c.Step)
	return c, nil
}

// load sets weights and moments from a checkpoint; nil is none.
func (t *trainer) load(c *checkpoint.Checkpoint) error {
	if c == nil {
		return nil
	}
	if c.Metadata[keyData] != t.data.sum {
		return fmt.Errorf("-resume: %s was trained on another text: give the same -data", t.opts.resume)
	}
	if err := t.restore(c); err != nil {
		return fmt.Errorf("-resume: %w: name a checkpoint of this model", err)
	}
	t.model.Updates = c.Step
	return nil
}

func (t *trainer) restore(c *checkpoint.Checkpoint) error {
	for _, p := range t.model.Parameters() {
		for on := range p.All() {
			for _, part := range parts(p.Name, on) {
				values := make([]float32, part.buffer.N)
				if err := checkpoint.Read(c, part.name, p.Shape, values); err != nil {
					return err
				}
				if err := on.Device.WriteFloat32(part.buffer, values); err != nil {
					return err
				}
			}
		}
	}
	if t.opts.model.FP8 == nil {
		return nil
	}
	scales, err := t.model.MarshalScales()
	if err == nil {
		err = checkpoint.Read(c, fp8Scales, []int{len(scales)}, scales)
	}
	if err == nil {
		err = t.model.UnmarshalScales(scales)
	}
	return err
}

// checkpoint writes a checkpoint after a step where one is due, and after the last one. Of
// several processes the one that writes decides.
func (t *trainer) checkpoint(ctx context.Context) error {
	if t.opts.checkpoint == "" {
		return nil
	}
	due := t.opts.saver.Due(int64(t.done)) || t.done == t.opts.steps
	if t.world != nil {
		var mine []byte
		if t.world.leads() && due {
			mine = []byte{1}
		}
		all, err := t.world.exchange(ctx, mine)
		if err != nil {
			return err
		}
		due = len(all[0]) > 0
	}
	if !due {
		return nil
	}
	err := t.fetching(t.save)
	if t.world.leads() && t.done < t.opts.steps {
		t.failed = err
	}
	return err
}

// save writes a checkpoint, and removes those that are not to stay.
func (t *trainer) save() error {
	state := checkpoint.State{Step: int64(t.done), Seed: t.opts.model.Seed, Metadata: map[string]string{keyData: t.data.sum}}
	for _, name := range deciding {
		state.Metadata[keyFlag+name] = t.opts.set.Lookup(name).Value.String()
	}
	var tensors []safetensors.Tensor
	for _, p := range t.parameters() {
		for _, part := range parts(p.Name, p.Copy) {
			tensors = append(tensors, safetensors.Load(part.name, p.Shape, func() ([]float32, error) { return read(p.Device, part.buffer) }))
		}
	}
	if t.opts.model.FP8 != nil {
		scales, err := t.model.MarshalScales()
		if err != nil {
			return err
		}
		tensors = append(tensors, safetensors.Of(fp8Scales, []int{len(scales)}, scales))
	}
	t.opts.saver.Dir = t.opts.checkpoint
	return outfile.Failed(t.opts.checkpoint, t.opts.saver.Save(state, tensors...))
}

// part is one tensor of a checkpoint.
type part struct {
	name   string
	buffer kernels.Buffer
}

// parts returns what a checkpoint holds of a parameter, in one of its copies.
func parts(name string, c transformer.Copy) [3]part {
	return [3]part{{name, c.Weight}, {firstMoment + name, c.M}, {secondMoment + name, c.V}}
}

// parameters returns the parameters in canonical order, that of their names.
func (t *trainer) parameters() []*transformer.Parameter {
	all := t.model.Parameters()
	slices.SortFunc(all, func(a, b *transformer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// read copies a buffer from its device.
func read(dev kernels.Device, b kernels.Buffer) ([]float32, error) {
	values := make([]float32, b.N)
	return values, dev.ReadFloat32(values, b)
}
