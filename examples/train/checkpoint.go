package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// A checkpoint holds the weights under their names, the moments of AdamW under
// their names with a prefix, and in its metadata how many steps the weights have
// seen, which text they saw, and the flags that decide what the next step does.
const (
	firstMoment  = "adamw.m."
	secondMoment = "adamw.v."
	fp8Scales    = "fp8.scales" // of a model in FP8: what transformer.Model.MarshalScales gives

	keySteps = "train.steps_done"
	keyData  = "train.data_sha256"
	keyFlag  = "train.flag."
)

// deciding are the flags that change the weights of a run. The others, such as
// -ranks, -plan and -stages, do not, or with a plan whose backward does not ascend
// only in their last bits.
var deciding = []string{
	"width", "layers", "heads", "tied", "seq", "microbatches", "steps", "seed", "dropout", "lr", "decay", "warmup", "clip",
	"fp8", "fp8-attention",
}

// older are those that a checkpoint may lack, with what it then was trained with.
var older = map[string]string{"fp8": float32s, "fp8-attention": "false"}

// saved is an open checkpoint.
type saved struct {
	*safetensors.File
	path  string
	steps int // that the weights have seen
}

// openCheckpoint opens a checkpoint and verifies its checksum. The caller closes
// it.
func openCheckpoint(path string) (*saved, error) {
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-resume: %w", plain(err))
	}
	s := &saved{File: file, path: path}
	metadata := file.Metadata()
	_, checked := metadata[safetensors.DigestKey]
	steps, err := strconv.Atoi(metadata[keySteps])
	if err != nil || steps < 0 || !checked {
		return nil, errors.Join(s.notOurs(), file.Close())
	}
	s.steps = steps
	return s, nil
}

func (s *saved) notOurs() error {
	return fmt.Errorf("-resume: %s is not a checkpoint of this program: name a file that -checkpoint wrote", s.path)
}

// adopt sets the flags that decide to those of the checkpoint. One that was given
// and says otherwise is an error, but for -steps.
func (o *options) adopt(s *saved) error {
	metadata := s.Metadata()
	for _, name := range deciding {
		value, ok := metadata[keyFlag+name]
		if before, knows := older[name]; !ok && knows {
			value, ok = before, true
		}
		if !ok {
			return s.notOurs()
		}
		if o.given[name] {
			if given := o.set.Lookup(name).Value.String(); given != value && name != "steps" {
				return fmt.Errorf("-resume: %s was trained with -%s %s, not %s: leave -%s out, or start without -resume",
					s.path, name, value, given, name)
			}
			continue
		}
		if o.set.Set(name, value) != nil {
			return s.notOurs()
		}
	}
	if s.steps >= o.steps {
		return fmt.Errorf("-resume: %s has seen all %d steps: give more with -steps", s.path, s.steps)
	}
	return nil
}

// load sets weights, moments and the step counter from a checkpoint.
func (t *trainer) load(s *saved, data string) error {
	if s.Metadata()[keyData] != data {
		return fmt.Errorf("-resume: %s was trained on another text: give the same -data", s.path)
	}
	for _, p := range t.model.Parameters() {
		for c := range p.All() {
			for _, part := range parts(p.Name, c) {
				if err := s.restore(part, p.Shape, c.Device); err != nil {
					return fmt.Errorf("-resume: %s: %w: name a checkpoint of this model", s.path, err)
				}
			}
		}
	}
	if t.opts.model.FP8 != nil {
		if err := s.restoreScales(t.model); err != nil {
			return fmt.Errorf("-resume: %s: %w: name a checkpoint of this model", s.path, err)
		}
	}
	t.model.Updates = int64(s.steps)
	return nil
}

// restore reads one tensor into its buffer.
func (s *saved) restore(part part, shape []int, dev kernels.Device) error {
	info, err := s.Info(part.name)
	if err != nil {
		return err
	}
	if !slices.Equal(info.Shape, shape) {
		return fmt.Errorf("%s has the shape %v, not %v", part.name, info.Shape, shape)
	}
	values := make([]float32, part.buffer.N)
	if err := safetensors.Read(s.Reader, part.name, values); err != nil {
		return err
	}
	return dev.WriteFloat32(part.buffer, values)
}

// restoreScales reads scales and histories.
func (s *saved) restoreScales(model *transformer.Model) error {
	want, err := model.MarshalScales()
	if err != nil {
		return err
	}
	info, err := s.Info(fp8Scales)
	if err != nil {
		return err
	}
	if !slices.Equal(info.Shape, []int{len(want)}) {
		return fmt.Errorf("%s has the shape %v, not [%d]", fp8Scales, info.Shape, len(want))
	}
	scales := make([]uint8, len(want))
	if err := safetensors.Read(s.Reader, fp8Scales, scales); err != nil {
		return err
	}
	return model.UnmarshalScales(scales)
}

// save writes a checkpoint.
func (t *trainer) save(path, data string) error {
	metadata := map[string]string{"format": "pt", keySteps: strconv.Itoa(t.done), keyData: data}
	for _, name := range deciding {
		metadata[keyFlag+name] = t.opts.set.Lookup(name).Value.String()
	}
	var tensors []safetensors.Tensor
	for _, p := range t.parameters() {
		for _, part := range parts(p.Name, p.Copy) {
			values, err := read(p.Device, part.buffer)
			if err != nil {
				return err
			}
			tensors = append(tensors, safetensors.Of(part.name, p.Shape, values))
		}
	}
	if t.opts.model.FP8 != nil {
		scales, err := t.model.MarshalScales()
		if err != nil {
			return err
		}
		tensors = append(tensors, safetensors.Of(fp8Scales, []int{len(scales)}, scales))
	}
	return writeFile(path, func(w io.Writer) error { return safetensors.Write(w, metadata, tensors...) })
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
