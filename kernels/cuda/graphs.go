package cuda

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/memory"
)

// graphs defers the kernels of a planned step until the end of the plan's action. A sequence of at
// least minPieces that recurs with the same addresses and arguments, apart from the arguments in
// varying, is captured as a graph. From then on it takes one launch, and a launch of the kernel put
// for every putWords of the arguments that vary. Device.mu guards it.
type graphs struct {
	on     bool // within a planned step
	failed error
	pieces []piece
	words  []uint64 // the arguments of pieces
	args   []uint64 // the arguments of the kernel put
	known  map[uint64]*recording
}

const (
	maxGraphs  = 1024 // maximum number of sequences that are kept
	minPieces  = 4    // minimum length of a sequence that is worth a graph
	maxVarying = 64   // maximum number of words of a sequence that differ between microbatches
	putWords   = 16   // words that one launch of the kernel put writes
)

// varying gives, by kernel, the index of the argument that differs between microbatches: the
// number of the microbatch, or a value computed from it. The next argument is 0, except in a graph:
// there it is an address from which the kernel reads the word instead.
var varying = map[string]int{"dropout": 4, "loss_add": 2, "quantize": 19}

// piece is a kernel launch, a copy within the device, or a fill with zeros.
type piece struct {
	function     driver.Function // 0 for copies and fills, whose words are the destination, the source (0 for a fill) and the size in bytes
	grid, block  [3]uint32
	first, count int // the words of the piece in graphs.words
	varies       int // index of the word that varies, or -1
}

// recording is a sequence that was queued before, with its graph if it was queued more than once.
type recording struct {
	pieces []piece
	words  []uint64
	graph  driver.Graph
}

// queue queues a piece, or defers it.
func (d *Device) queue(p piece, words ...uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &d.graphs
	if err := g.failed; err != nil {
		return err
	}
	p.first, p.count = len(g.words), len(words)
	g.words = append(g.words, words...)
	if own := g.words[p.first:]; g.on {
		if err := d.driver.Defer(d.compute, own); err != nil {
			g.words = g.words[:p.first]
			return err
		}
		g.pieces = append(g.pieces, p)
		return nil
	}
	err := d.submit(&p)
	g.words = g.words[:0]
	return err
}

// submit passes a piece to the driver.
func (d *Device) submit(p *piece) error {
	w := d.graphs.words[p.first:][:p.count]
	switch {
	case p.function != 0:
		return d.driver.Launch(d.compute, p.function, driver.Launch{Grid: p.grid, Block: p.block, Args: w})
	case w[1] != 0:
		return d.driver.Copy(d.compute, driver.Addr(w[0]), driver.Addr(w[1]), int64(w[2]))
	}
	return d.driver.Fill(d.compute, driver.Addr(w[0]), 0, int64(w[2]))
}

// flushLocked queues the deferred pieces. mu must be held. After an error nothing more is queued until
// Sync.
func (d *Device) flushLocked() error {
	g := &d.graphs
	if len(g.pieces) > 0 && g.failed == nil {
		g.failed = d.queueDeferred()
	}
	g.pieces, g.words = g.pieces[:0], g.words[:0]
	return g.failed
}

// queueDeferred queues the deferred pieces as a graph if their sequence recurs, and otherwise one by one.
func (d *Device) queueDeferred() error {
	g := &d.graphs
	if len(g.pieces) >= minPieces {
		sum := g.sum()
		if r := g.known[sum]; r != nil && r.is(g) {
			return d.again(r)
		} else if r == nil && len(g.known) < maxGraphs && g.variations() <= maxVarying {
			g.known[sum] = &recording{pieces: slices.Clone(g.pieces), words: slices.Clone(g.words)}
		}
	}
	for i := range g.pieces {
		if err := d.submit(&g.pieces[i]); err != nil {
			return err
		}
	}
	return nil
}

// again queues a recorded sequence: first the words that vary, then the graph, which it captures if
// there is none yet.
func (d *Device) again(r *recording) (err error) {
	g := &d.graphs
	if r.graph == 0 {
		if r.graph, err = d.driver.Capture(d.compute, d.capture); err != nil {
			return fmt.Errorf("cuda: the graph of an action (Config.Plain uses none): %w", err)
		}
	}
	one, slots := [3]uint32{1, 1, 1}, uint64(d.scratch)+varyingAt
	for i := 0; i < len(g.pieces); slots += 8 * putWords {
		g.args = append(g.args[:0], slots)
		for ; i < len(g.pieces) && len(g.args) <= putWords; i++ {
			if p := &g.pieces[i]; p.varies >= 0 {
				g.args = append(g.args, g.words[p.first+p.varies])
			}
		}
		if len(g.args) == 1 {
			break
		}
		g.args = append(g.args, make([]uint64, 1+putWords-len(g.args))...)
		if err := d.driver.Launch(d.compute, d.functions["put"], driver.Launch{Grid: one, Block: one, Args: g.args}); err != nil {
			return err
		}
	}
	return d.driver.LaunchGraph(d.compute, r.graph)
}

// capture queues the pieces in such a way that the varying words are read from scratch memory.
func (d *Device) capture() error {
	g, slots := &d.graphs, uint64(d.scratch)+varyingAt
	for i := range g.pieces {
		p := &g.pieces[i]
		if p.varies >= 0 {
			g.words[p.first+p.varies+1], slots = slots, slots+8
		}
		if err := d.submit(p); err != nil {
			return err
		}
	}
	return nil
}

// variations returns the number of pieces with a varying word.
func (g *graphs) variations() (n int) {
	for i := range g.pieces {
		if g.pieces[i].varies >= 0 {
			n++
		}
	}
	return n
}

// sum returns a hash like FNV of the sequence's functions, grids and words, except the words that
// vary.
func (g *graphs) sum() uint64 {
	h := uint64(14695981039346656037)
	for i := range g.pieces {
		p := &g.pieces[i]
		h = (h ^ uint64(p.function) ^ uint64(p.grid[0])<<32 ^ uint64(p.grid[1])) * 1099511628211
		for k, w := range g.words[p.first:][:p.count] {
			if k != p.varies {
				h = (h ^ w ^ h>>29) * 1099511628211
			}
		}
	}
	return h
}

// is reports whether the deferred sequence is the recorded one, except for the varying words.
func (r *recording) is(g *graphs) bool {
	if !slices.Equal(r.pieces, g.pieces) {
		return false
	}
	for i := range g.pieces {
		p := &g.pieces[i]
		was, now := r.words[p.first:][:p.count], g.words[p.first:][:p.count]
		if k := p.varies; k >= 0 && (!slices.Equal(was[:k], now[:k]) || !slices.Equal(was[k+1:], now[k+1:])) || k < 0 && !slices.Equal(was, now) {
			return false
		}
	}
	return true
}

// uses reports whether a deferred piece may use a buffer: whether any of the words is an address in
// the buffer. mu must be held.
func (g *graphs) uses(at driver.Addr, bytes int64) bool {
	return slices.ContainsFunc(g.words, func(w uint64) bool { return w >= uint64(at) && w < uint64(at)+uint64(bytes) })
}

// forgetGraphs destroys all graphs, because their addresses now refer to other buffers. It is
// called between steps, when nothing is deferred.
func (d *Device) forgetGraphs() (err error) {
	for _, r := range d.graphs.known {
		if r.graph != 0 {
			err = joined(err, d.driver.FreeGraph(r.graph))
		}
	}
	clear(d.graphs.known)
	return err
}

// SetLayout starts or ends planned steps; see memory.Planned. In a planned step, unless Config.Plain
// or Config.Library is set, an action's kernels are queued when the action ends, because their
// sequence is not known before.
func (d *Device) SetLayout(layout *memory.Layout) error {
	d.mu.Lock()
	flushErr := d.flushLocked()
	d.graphs.on = false
	d.mu.Unlock()
	if err := d.Buffers.SetLayout(layout); err != nil || layout == nil {
		return joined(flushErr, err)
	}
	d.mu.Lock()
	d.graphs.on = !d.plain
	d.mu.Unlock()
	return flushErr
}

// SetPlace sets the place that a step has reached in its program, and queues the deferred pieces. The
// next call returns any error.
func (d *Device) SetPlace(place int) {
	d.mu.Lock()
	_ = d.flushLocked()
	d.mu.Unlock()
	d.Buffers.SetPlace(place)
}
