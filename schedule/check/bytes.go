package check

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// Sizes holds the sizes of the messages of a plan. The zero value counts messages: each has size 1.
type Sizes struct {
	// Of returns the bytes of the message of a SEND_F or SEND_B, at least 1.
	Of func(send schedule.Action) int64
	// Vary means that the messages of a stage in one direction may have different sizes. No repeats are
	// skipped in this case.
	Vary bool
}

// ProveBytes is like Prove for links that hold a number of bytes, or any number of messages if the capacity
// is schedule.Unlimited. A link from one rank to another is a first-in, first-out buffer in each
// direction of the model (PyTorch's has both directions). A send of n bytes into a link that holds h
// bytes of earlier messages
//
//   - completes immediately if h+n does not exceed the capacity;
//   - otherwise waits until receives have removed enough of the earlier messages;
//   - and waits for its own receive if n alone exceeds the capacity (rendezvous). The link is then empty, and the send
//     and the receive complete together.
//
// A receive completes when the send of its message has completed, and removes the whole message. Nothing else frees
// space. A rank waits at each of its sends and receives, in the order of its program.
//
// This is a model of the buffer of an NCCL connection (src/device/sendrecv.h and prims_simple.h of NCCL 2.30): a send
// copies its message chunk by chunk into a ring of NCCL_BUFFSIZE bytes for each channel and returns after the last
// chunk; it waits for the receive to free a chunk if the ring is full. So part of a message may be in the ring while
// its send waits. This does not change when the send or the receive completes, because a receive takes only the chunks
// of its own message. The capacity is the number of channels that a send uses times NCCL_BUFFSIZE. It is an upper
// bound: each message begins a new chunk, so a link holds fewer small messages than their bytes suggest, and a
// connection with registered buffers copies directly, with a capacity of 0.
//
// In MPI, a standard send of at most the eager limit completes before its receive, and a longer send waits for its
// receive. MPI does not bound the eager messages in flight, so a plan that is safe for links that hold the bytes of the
// eager limit is safe in MPI. A plan that is not safe for such links may still be safe in MPI. A plan that is safe with
// 0 bytes is safe in every implementation.
func ProveBytes(plan *schedule.Plan, capacity int64, sizes Sizes) (Proof, error) {
	return prove(plan, capacity, sizes)
}

// maxSum is the maximum sum of the sizes of all messages on one link.
const maxSum = unlimited >> 1

// measure checks the sizes, and stores the size of each edge's messages. If the sizes vary, only 0, for an edge
// without messages, has a meaning.
func (c *Checker) measure(sizes Sizes) {
	c.sizes = sizes
	if sizes.Of == nil || c.Plan == nil || c.aborted {
		return
	}
	c.edgeSizes = make([]int64, 2*c.Stages)
	links := passes.NewLinks(&c.Outline)
	for e := range c.edgeSizes {
		if links.Crossing(e) < 0 {
			continue
		}
		span := c.Span(e / 2)
		for mb := span.Lo; mb < span.Hi && (mb == span.Lo || sizes.Vary); mb++ {
			send := passes.Sent(e, mb)
			n := sizes.Of(send)
			if c.edgeSizes[e] = n; n < 1 || n > maxSum/int64(2*c.Stages)/c.Microbatches {
				c.aborted = true
				c.planFault(Malformed, -1, "The message of %v cannot have %d bytes; use 1 to %d.", send, n, maxSum/int64(2*c.Stages)/c.Microbatches)
				return
			}
		}
	}
}

// size returns the size of the message of a microbatch on an edge.
func (c *Checker) size(e int, mb int64) int64 {
	switch {
	case c.sizes.Of == nil:
		return 1
	case c.sizes.Vary:
		return c.sizes.Of(passes.Sent(e, mb))
	}
	return c.edgeSizes[e]
}

// unit returns the greatest common divisor of the sizes of all messages. The least capacity of a link is a multiple
// of it.
func (c *Checker) unit() int64 {
	if c.sizes.Of == nil {
		return 1
	}
	divisor := int64(0)
	for e, n := range c.edgeSizes {
		if n == 0 {
			continue
		}
		span := c.Span(e / 2)
		for mb := span.Lo; mb < span.Hi && (mb == span.Lo || c.sizes.Vary); mb++ {
			for n = c.size(e, mb); n != 0; {
				divisor, n = n, divisor%n
			}
		}
	}
	return max(divisor, 1)
}

// fullLink describes the first link in a waiting cycle that has no space for a message. It returns "" if there is
// none, or if the capacity of links is in messages.
func (v *progressVisitor) fullLink(cycle []waitgraph.Waiting) string {
	for _, w := range cycle {
		kind := w.Action.Kind()
		if v.c.sizes.Of == nil || kind != schedule.SendF && kind != schedule.SendB {
			continue
		}
		e := passes.Edge(w.Action)
		if link := v.links.Crossing(e); link >= 0 {
			link = v.links.Of[e]
			return fmt.Sprintf(" %v has %s; the link from rank %d to rank %d holds %s of %s.", w.Action, units.Size(v.c.size(e, int64(w.Action.Microbatch()))),
				w.Rank, v.links.To[link], units.Size(v.machine.Counts[link]), units.Size(v.machine.Limits[link]))
		}
	}
	return ""
}
