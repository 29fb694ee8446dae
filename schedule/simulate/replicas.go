package simulate

import "github.com/weir-ml/weir/schedule"

// The kinds of waits of a rank. The time in waitWire is also part of the other kinds.
const (
	waitOther    = iota // for anything that the report does not count separately
	waitWire            // for a message on the wire, or a copy or an exchange in progress
	waitGathered        // for gathered weights
	waitReduced         // for a reduction of gradients
	waitCopied          // for a copy to or from far memory
	numWaits     = iota
)

// replicate adds two lanes for each rank, as links from the rank to itself: one for reductions of
// gradients and one for gathers of weights. It sets the costs of the actions that start exchanges and
// of the actions that wait for them.
func (s *simulation) replicate() {
	s.reducing = make([]int, len(s.outline.On))
	for rank, stages := range s.outline.On {
		reduces, gathers := s.lane(rank, s.costs.replicaLatency()), s.lane(rank, s.costs.replicaLatency())
		s.reducing[rank] = reduces
		for _, stage := range stages {
			set := func(kind schedule.Kind, d actionCost) { s.actionCosts[tableIndex(stage, kind)] = d }
			box := 0
			if s.outline.Includes(stage, schedule.WaitReduce) {
				box = s.mailbox()
				set(schedule.WaitReduce, actionCost{op: opAwait, awaitBox: box, waitsFor: waitReduced})
			}
			set(schedule.ReduceGrad, actionCost{op: opCopy, link: reduces, sendBox: box, wire: wire{time: s.costs.exchange(s.costs.Reduced(stage))}})
			if !s.outline.Includes(stage, schedule.Unshard) {
				continue
			}
			box = s.mailbox()
			set(schedule.Unshard, actionCost{op: opCopy, link: gathers, sendBox: box, wire: wire{time: s.costs.exchange(s.costs.Gathered(stage))}})
			for _, kind := range [...]schedule.Kind{schedule.F, schedule.B, schedule.I, schedule.W} {
				s.actionCosts[tableIndex(stage, kind)].gatherBox = box
			}
		}
	}
}

// peerBytes returns the number of bytes that belong to the other replicas if each replica has an equal
// part.
func (c *Costs) peerBytes(bytes int64) int64 {
	n := int64(max(c.Replicas, 1))
	return bytes - (bytes+n-1)/n
}

// Reduced returns the number of bytes that a rank sends, and also receives, to reduce the gradients of a
// stage. Each replica sums a part of the gradients. If the replicas do not shard state, the result
// includes the gathering of the sums.
func (c *Costs) Reduced(stage int) int64 {
	bytes := c.peerBytes(c.Of(stage).Gradients)
	if c.Shard == 0 {
		bytes *= 2
	}
	return bytes
}

// Gathered returns the number of bytes that a rank receives, and also sends, for an UNSHARD of a stage.
func (c *Costs) Gathered(stage int) int64 { return c.peerBytes(c.Of(stage).Weights) }

// replicaLatency returns the latency of an exchange between replicas, which is 0 for a single replica.
func (c *Costs) replicaLatency() int64 {
	if c.Replicas < 2 {
		return 0
	}
	return c.ReplicaLatency
}

// exchange returns the time for which an exchange of the bytes between replicas occupies a lane.
func (c *Costs) exchange(bytes int64) int64 {
	return LinkCosts{PerMiB: c.ReplicaPerMiB}.transmission(bytes)
}

// state returns the number of bytes of the stage's weights, gradients and optimizer state that are
// always allocated on its rank.
func (c *Costs) state(stage int) int64 {
	s := c.Of(stage)
	held := func(bytes int64, level int) int64 {
		if c.Shard >= level {
			bytes -= c.peerBytes(bytes)
		}
		return bytes
	}
	return held(s.Weights, schedule.ShardWeights) + held(s.Gradients, schedule.ShardGradients) + held(s.Optimizer, schedule.ShardOptimizer)
}

// addExchanges adds the exchanges of a rank to its report. It returns the time at which the rank has
// finished its last computation and its last reduction. If a replica updates only a part of the weights
// but keeps all of them, this includes the time to gather the new weights.
func (s *simulation) addExchanges(rank int, r *simRank, out *RankReport) int64 {
	end, lane := r.last, s.reducing[rank]
	var updated int64
	reduces := false
	for _, segment := range s.plan.Programs[rank] {
		for _, a := range segment.Body {
			switch stage, n := a.Stage(), int64(segment.Repeat); a.Kind() {
			case schedule.Unshard:
				out.Unshards += n
				out.GatheredBytes += n * s.costs.Gathered(stage)
			case schedule.ReduceGrad:
				reduces = true
				out.ReducedBytes += n * s.costs.Reduced(stage)
				out.Reducing += n * s.actionCosts[tableIndex(stage, schedule.ReduceGrad)].wire.time
			}
		}
	}
	out.GatherWait = r.counted[waitGathered]
	if reduces {
		reduced := max(end, s.linkStates[lane].freeAt+s.costs.replicaLatency())
		out.ReduceWait = r.counted[waitReduced] + reduced - end
		end = reduced
	}
	if s.costs.Shard == schedule.ShardOptimizer || s.costs.Shard == schedule.ShardGradients {
		for _, stage := range s.outline.On[rank] {
			if !s.plan.IsFrozen(stage) {
				updated += s.costs.Gathered(stage)
			}
		}
	}
	if updated > 0 && s.plan.Mode == schedule.Training {
		out.GatheredBytes += updated
		end += s.costs.exchange(updated) + s.costs.replicaLatency()
	}
	return end
}
