package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/job"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// A checkpoint contains the weights under their names, the moments of AdamW under their names
// with a prefix, and in its metadata the identity of the text, and the flags that affect the
// next step.
const (
	firstMoment  = "adamw.m."
	secondMoment = "adamw.v."
	fp8Scales    = "fp8.scales" // of a model in FP8: the result of transformer.Model.MarshalScales

	keySteps = "train.steps_done" // of single-file checkpoints, which earlier versions wrote
	keyData  = "train.data_sha256"
)

// deciding lists the flags that change the weights of a run. Other flags, such as -ranks, -plan
// and -stages, do not, or change only the last bits if the plan's backward does not ascend.
var deciding = []string{
	"width", "layers", "heads", "tied", "seq", "microbatches", "steps", "seed", "dropout", "lr", "decay", "warmup", "clip",
	"fp8", "fp8-attention", "products", "tokens", "vocabulary", "lengths", "pack", "packer",
}

// older lists flags that older checkpoints lack, with the values that these checkpoints imply.
var older = map[string]string{"fp8": float32s, "fp8-attention": "false", "products": products[0], "tokens": "", "vocabulary": "256", "lengths": "false", "pack": "0", "packer": packers[0]}

// opened checks the checkpoint that the run resumes, and sets its Step from the metadata of an
// earlier version.
func (t *trainer) opened(c *checkpoint.Checkpoint) (err error) {
	if steps, old := c.Metadata[keySteps]; old {
		if c.Step, err = strconv.ParseInt(steps, 10, 32); err != nil {
			return job.ErrForeign
		}
	}
	if _, cuda, _ := t.opts.cudaNumber(); !cuda && t.opts.products != products[0] {
		return fmt.Errorf("was trained with -products %s, which -device cuda has: give -products %s to continue without a GPU", t.opts.products, products[0])
	}
	return nil
}

// Restore sets weights and moments from a checkpoint.
func (t *trainer) Restore(c *checkpoint.Checkpoint) error {
	if c.Metadata[keyData] != t.data.sum {
		return fmt.Errorf("%s was trained on another text: give the same -data", t.opts.Resume)
	}
	if err := t.restore(c); err != nil {
		return fmt.Errorf("%w: name a checkpoint of this model", err)
	}
	t.model.Updates = c.Step
	return nil
}

func (t *trainer) restore(c *checkpoint.Checkpoint) error {
	for _, kind := range kinds {
		tensors, err := t.tensors(kind, true)
		if err == nil {
			err = t.session.Process.Restore(c, tensors)
		}
		if err != nil {
			return err
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

// State returns the state of the run, and this process's pieces of it.
func (t *trainer) State() (checkpoint.State, []checkpoint.Piece, error) {
	state := checkpoint.State{Step: int64(t.session.Done), Seed: t.opts.model.Seed, Metadata: map[string]string{keyData: t.data.sum}}
	var pieces []checkpoint.Piece
	for _, kind := range kinds {
		tensors, err := t.tensors(kind, false)
		if err != nil {
			return state, nil, err
		}
		pieces = append(pieces, t.session.Process.Stored(tensors)...)
	}
	if t.opts.model.FP8 != nil && t.session.Process.Leads() {
		scales, err := t.model.MarshalScales()
		if err != nil {
			return state, nil, err
		}
		pieces = append(pieces, checkpoint.Whole(safetensors.Of(fp8Scales, []int{len(scales)}, scales))...)
	}
	return state, pieces, nil
}

// kind is a kind of tensor in a checkpoint. A tensor's name is a prefix and the name of its
// parameter.
type kind struct {
	prefix string
	buffer func(c transformer.Copy) kernels.Buffer
}

var (
	weights = kind{"", func(c transformer.Copy) kernels.Buffer { return c.Weight }}
	kinds   = []kind{
		weights,
		{firstMoment, func(c transformer.Copy) kernels.Buffer { return c.M }},
		{secondMoment, func(c transformer.Copy) kernels.Buffer { return c.V }},
	}
)

// tensors returns the tensors of a kind on all ranks, in order of their names: either all copies, or every
// element once. For the latter it takes, from the first copy of each parameter in each replica, the
// elements that the replica owns.
func (t *trainer) tensors(k kind, copies bool) (all []job.Tensor, err error) {
	parameters := t.model.Parameters()
	slices.SortFunc(parameters, func(a, b *transformer.Parameter) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range parameters {
		last := -1 // replica
		for c := range p.All() {
			b := k.buffer(c)
			if !copies {
				if c.Replica == last || c.Count == 0 {
					continue
				}
				last = c.Replica
				if b, err = c.Own(b); err != nil {
					return nil, err
				}
			}
			rank := slices.IndexFunc(t.ranks, func(dev job.Device) bool { return kernels.Compute(dev) == c.Device })
			tensor := job.Tensor{Name: k.prefix + p.Name, Shape: p.Shape, Rank: rank, Device: c.Device, Buffer: b}
			if b.N == c.Count {
				tensor.First = c.First
			}
			all = append(all, tensor)
		}
	}
	return all, nil
}
