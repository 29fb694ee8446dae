package simulate

import "github.com/weir-ml/weir/schedule"

// offloads adds two lanes for each rank, to and from far memory, as links from the rank to itself.
// It sets the costs of the actions that start copies and of the actions that wait for them.
func (s *simulation) offloads() {
	for rank, stages := range s.outline.On {
		out, outbox := s.lane(rank, s.costs.FarLatency), s.mailbox()
		back, inbox := s.lane(rank, s.costs.FarLatency), s.mailbox()
		for _, stage := range stages {
			wire := s.wireTime(s.costs.FarPerMiB, offloadedBytes, stage)
			set := func(kind schedule.Kind, d actionCost) { s.actionCosts[tableIndex(stage, kind)] = d }
			set(schedule.Offload, actionCost{op: opCopy, link: out, sendBox: outbox, wire: wire})
			set(schedule.WaitOffload, actionCost{op: opAwait, awaitBox: outbox, waitsFor: waitCopied})
			set(schedule.Reload, actionCost{op: opCopy, link: back, sendBox: inbox, wire: wire})
			for _, kind := range [...]schedule.Kind{schedule.B, schedule.I} {
				s.actionCosts[tableIndex(stage, kind)].reloadBox = inbox
			}
		}
	}
}

// lane adds a link from a rank to itself, which carries one copy or exchange at a time, and returns its index.
func (s *simulation) lane(rank int, latency int64) int {
	s.routes = append(s.routes, route{from: rank, to: rank, latency: latency})
	return len(s.routes) - 1
}

// offloadedBytes returns the bytes of saved state that an OFFLOAD moves.
func (c *StageCosts) offloadedBytes() int64 {
	if c.Offloaded != 0 {
		return c.Offloaded
	}
	return c.Saved
}

// endFar frees the far copy of the saved state that an action takes, if there is one.
func (l *level) endFar(a schedule.Action) {
	if l.reloaded == nil || a.Kind() != schedule.B && a.Kind() != schedule.I {
		return
	}
	if stage := a.Stage(); l.reloaded[l.stageIndex[stage]].Has(int64(a.Microbatch())) {
		l.far -= l.s.bytes(offloadedBytes, stage, a.Microbatch())
	}
}

// uniformReloads reports whether each action of a segment takes reloaded state either in all repeats or
// in none.
func (l *level) uniformReloads(s *schedule.Segment) bool {
	for _, a := range s.Body {
		if l.reloaded == nil || a.Kind() != schedule.B && a.Kind() != schedule.I {
			continue
		}
		first, last := int64(a.Microbatch()), int64(a.Microbatch()+(s.Repeat-1)*s.Stride)
		if !l.reloaded[l.stageIndex[a.Stage()]].Even(min(first, last), max(first, last)) {
			return false
		}
	}
	return true
}
