package runner

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// complete sets the fields that are derived from others. It returns an error if the stages cannot be
// placed.
func (c *Config[T]) complete() error {
	c.Losses = c.losses()
	if c.Topology.Ranks == 0 {
		c.Topology.Ranks = max(len(c.Spaces)/c.Replicas.count(), 1)
	}
	if c.dry == nil {
		c.Replicas.Shard = c.Replicas.shard()
	}
	if c.Memory.Ring == 0 {
		c.Memory.Ring = 256
	}
	if isNil(c.Memory.Profile) {
		c.Memory.Profile = nil
	}
	if c.Topology.Copy == nil && c.Topology.Transport == nil && len(c.Spaces) > 1 {
		c.Topology.Copy = receiving(c.Spaces)
	}
	return c.place()
}

// losses returns Losses, and marks those that stages declare as metrics. If Losses is nil and stages
// declare at most one loss that trains, it returns the declared losses: the one that trains is the
// objective.
func (c *Config[T]) losses() []loss.Def {
	losses := c.declared(func(spec *stages.Spec) []string { return spec.Losses })
	metrics := c.declared(func(spec *stages.Spec) []string { return spec.Metrics })
	defs := slices.Clone(c.Losses)
	if c.Losses == nil && len(losses)-len(metrics) <= 1 {
		for _, name := range losses {
			defs = append(defs, loss.Def{Name: name, Objective: !slices.Contains(metrics, name)})
		}
	}
	for i := range defs {
		defs[i].Metric = defs[i].Metric || slices.Contains(metrics, defs[i].Name)
	}
	return defs
}

// receiving returns a function that copies between spaces, or nil if any space does not implement
// memory.Receiver.
func receiving[T any](spaces []memory.Space[T]) func(from, to int, h T) (T, error) {
	receivers := make([]memory.Receiver[T], len(spaces))
	for i, space := range spaces {
		if receivers[i], _ = space.(memory.Receiver[T]); receivers[i] == nil {
			return nil
		}
	}
	return func(from, to int, h T) (T, error) { return receivers[to].Receive(spaces[from], h) }
}

// sum returns the function that computes the checksum of a rank's tensor, or nil if Topology.Sums is not set.
func (c *Config[T]) sum() func(rank int, h T) (uint32, error) {
	if !c.Topology.Sums {
		return nil
	}
	return func(rank int, h T) (uint32, error) { return transport.SumOf(c.Spaces[rank].(transport.Codec[T]), h) }
}

// declared calls names with the spec of every stage and returns the results without duplicates, in
// stage order.
func (c *Config[T]) declared(names func(spec *stages.Spec) []string) (all []string) {
	for _, stage := range c.Stages {
		if stage == nil {
			continue // validate rejects it
		}
		spec := stage.Spec()
		for _, name := range names(&spec) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// parts returns the names of the entry parts, in the order in which stages first read them.
func (c *Config[T]) parts() []string {
	return c.declared(func(spec *stages.Spec) (parts []string) {
		for _, read := range spec.Reads {
			parts = append(parts, read.Part)
		}
		return parts
	})
}

// place sets the rule and the placement, and takes the capacity of the links from Plan.Fixed.
func (c *Config[T]) place() error {
	p, ranks, count := &c.Plan, c.Topology.Ranks, c.depth()
	placed := p.Placement.Rank != nil || p.Placement.Ranks != 0
	if p.Fixed != nil {
		if c.Schedule != "" || p.Rule != nil || placed || p.Group != 0 || p.Cap != 0 || p.Slices != 0 || p.Unchecked {
			return errors.New("runner: Plan.Fixed is set: leave out Schedule, and in Plan leave out Rule, Placement, Group, Cap, Slices and Unchecked")
		}
		p.Rule, p.Placement = lower.RuleFromPlan(p.Fixed), p.Fixed.Placement
		if w := &c.Topology; w.Transport == nil && w.Capacity == 0 && p.Fixed.Capacity > 0 {
			w.Capacity = p.Fixed.Capacity
		}
		return nil
	}
	if p.Rule != nil {
		if c.Schedule != "" {
			return fmt.Errorf("runner: Schedule is %q and Plan.Rule is set: set one of them", c.Schedule)
		}
		if !placed {
			p.Placement = schedule.Looped(ranks, count)
		}
		return nil
	}
	if c.Schedule == "" {
		c.Schedule = "depth-first"
	}
	named, err := schedule.Find(c.Schedule)
	if err != nil {
		return fmt.Errorf("runner: Schedule: %w", err)
	}
	p.Rule = named.Rule
	if placed || count < 1 { // validate rejects it
		return nil
	}
	if p.Placement, err = named.Place(ranks, count); err == nil {
		if copies := max(p.Placement.Copies, 1); copies > 1 {
			err = fmt.Errorf("%d stages: list the stages of %d copies of the model, copy after copy", count, copies)
		}
	}
	if err != nil && count%2 == 0 { // two copies of the model
		if twice, refused := named.Place(ranks, count/2); refused == nil && twice.Stages() == count {
			p.Placement, err = twice, nil
		}
	}
	if err != nil {
		return fmt.Errorf("runner: Schedule: %w", err)
	}
	return nil
}

// total returns the number of ranks of all replicas.
func (c *Config[T]) total() int { return c.Topology.Ranks * c.Replicas.count() }

// ranksPerReplica returns the number of ranks per replica if there are several replicas, or else 0.
func (c *Config[T]) ranksPerReplica() int {
	if c.Replicas.count() == 1 {
		return 0
	}
	return c.Topology.Ranks
}

// depth returns the number of stages per replica.
func (c *Config[T]) depth() int { return len(c.Stages) / c.Replicas.count() }

// stagesOf returns the stages of a replica.
func (c *Config[T]) stagesOf(replica int) []stages.Stage[T] {
	return c.Stages[replica*c.depth():][:c.depth()]
}

// owns reports whether a rank belongs to this process.
func (c *Config[T]) owns(rank int) bool {
	return rank >= c.Topology.First && rank < c.Topology.First+len(c.Spaces)
}

// gradients returns the Gradients of a rank with the given space, or nil if there are none.
func (c *Config[T]) gradients(space memory.Space[T]) Gradients[T] {
	if c.Gradients != nil {
		return c.Gradients
	}
	able, _ := space.(Gradients[T])
	return able
}
