package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/pack"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/stages/transformer"
	"github.com/weir-ml/weir/trainer/costs"
)

// packedStep is a step whose sequences share microbatches.
type packedStep struct {
	packs   [][]int // the numbers of the sequences of each microbatch
	lengths []int64 // of the sequences
	source  runner.Source[kernels.Buffer]
	packing *pack.Packing
}

// sequences returns the numbers of the sequences of a microbatch. Without packing, a microbatch has one sequence,
// with its own number.
func (s *packedStep) sequences(microbatch int) []int {
	if s == nil || s.packs == nil {
		return []int{microbatch}
	}
	return s.packs[microbatch]
}

// ofModel returns the sequences of a microbatch for transformer.Model.Sequences.
func (s *packedStep) ofModel(microbatch int) (all []transformer.Sequence) {
	for _, n := range s.packs[microbatch] {
		all = append(all, transformer.Sequence{Number: n, Tokens: int(s.lengths[n])})
	}
	return all
}

// packing packs the steps of a run.
type packing struct {
	packer  *pack.Packer
	current packedStep // which the sources read
	next    packedStep
	// Of all steps so far.
	forecast, measured time.Duration
	microbatches       int
	forecastPeak, peak int64 // the highest peak of any rank, in bytes
}

// newPacking makes the packer of a run for the costs of -costs, which have the resident bytes of the
// ranks, and packs the first step.
func (t *trainer) newPacking() (err error) {
	o := t.opts
	t.packing.packer, err = pack.New(pack.Config{
		Rule: o.Rule, Params: schedule.Params{Placement: o.Placement, Group: o.Group, Cap: o.Cap}, Costs: o.Priced, Capacity: o.Capacity, Replicas: o.Replicas, Limits: pack.Limits{Tokens: int64(o.pack)},
	})
	if err != nil {
		return fmt.Errorf("-pack: %w", err)
	}
	t.packing.next, err = t.packStep(t.session.Done)
	return err
}

// packStep plans a step from the lengths of its documents. It may run while another step runs.
func (t *trainer) packStep(step int) (s packedStep, err error) {
	documents := *t.data.documents
	documents.Step = int64(step)
	for i := range t.opts.Microbatches {
		begin, end := documents.Window(i)
		s.lengths = append(s.lengths, int64(end-begin))
	}
	if t.opts.packer == packers[0] {
		s.packing, err = t.packing.packer.Pack(s.lengths)
	} else {
		s.packing, err = t.packing.packer.Other(pack.InOrder, s.lengths)
	}
	if err != nil {
		return s, fmt.Errorf("-pack: step %d: %w", step+1, err)
	}
	var order [][]int
	s.packs, order = s.packing.Microbatches()
	s.source = runner.InOrder(t.train, order)
	return s, nil
}

// stepPacked runs a step, and plans and prepares the next step at the same time.
func (t *trainer) stepPacked(ctx context.Context) (*runner.Result, error) {
	p := &t.packing
	p.current = p.next
	t.model.Sequences = p.current.ofModel
	defer func() { t.model.Sequences = nil }() // an evaluation has one sequence in each microbatch
	prepared := make(chan error, 1)
	go func() {
		var err error
		if p.next, err = t.packStep(t.session.Done + 1); err == nil && t.unplanned == nil {
			_, err = t.run.Prepare(ctx, len(p.next.packs), p.next.source)
		}
		prepared <- err
	}()
	result, err := t.run.Step(ctx, len(p.current.packs), p.current.source)
	if err = errors.Join(err, <-prepared); err != nil {
		return nil, err
	}
	seconds, _ := costs.Seconds(t.opts.Priced, p.current.packing.Makespan)
	p.forecast += time.Duration(seconds * float64(time.Second))
	p.measured += result.Makespan
	p.peak = max(p.peak, result.Peak)
	p.microbatches += len(p.current.packs)
	for _, r := range p.current.packing.Replicas {
		p.forecastPeak = max(p.forecastPeak, slices.Max(r.Peaks))
	}
	return result, nil
}

// table prints the predictions of the packer for a number of steps, and the measured values.
func (p *packing) table(w io.Writer, steps int) {
	if steps == 0 || p.packer == nil {
		return
	}
	each := func(d time.Duration) string { return (d / time.Duration(steps)).Round(10 * time.Microsecond).String() }
	fmt.Fprintf(w, "\npacked  %.1f microbatches a step; forecast %s a step and a peak of %s, measured %s and %s\n",
		float64(p.microbatches)/float64(steps), each(p.forecast), units.Size(p.forecastPeak), each(p.measured), units.Size(p.peak))
}
