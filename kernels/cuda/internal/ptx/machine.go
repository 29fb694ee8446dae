package ptx

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// warpSize is the number of threads that run together.
const warpSize = 32

// lanes is a register of each thread of a warp.
type lanes [warpSize]uint64

// warp is up to 32 threads of a block.
type warp struct {
	first     int // number of its first thread in the block
	live      uint32
	at        uint32 // the threads that are at pc; places has the positions of the others
	pc        int
	next      int // the least of the places of threads that are not in at
	places    [warpSize]int
	registers []lanes
	waiting   bool // at a barrier
}

// machine is the state of a launch.
type machine struct {
	kernel      *Kernel
	memory      Memory
	grid, block [3]int
	threads     int // per block
	params      []byte
	pieces      []*piece // of global memory that has been accessed
	near        []*piece // the last piece used by each instruction
	shared      piece
	number      int // of the current block
	epoch       uint32
	ran         []bool
	rng         *rand.Rand
}

// Hardware limits.
const (
	maxThreads = 1024
	maxShared  = 227 << 10
)

// Launch runs a kernel on a grid of blocks, with a given number of bytes of dynamic shared
// memory and the parameters in their layout in memory (Param). It returns when all blocks are
// done. An error in the kernel is a *LaunchError; earlier writes remain. The seed determines the
// order of blocks and warps.
func (k *Kernel) Launch(memory Memory, grid, block [3]int, shared int, params []byte, seed uint64) error {
	threads, blocks := 1, 1
	for i := range 3 {
		if grid[i] < 1 || block[i] < 1 || grid[i] > 1<<31-1 || i > 0 && grid[i] > 65535 || block[i] > maxThreads {
			return fmt.Errorf("ptx: %s: a grid of %v blocks of %v threads", k.Name, grid, block)
		}
		threads, blocks = threads*block[i], blocks*grid[i]
	}
	if threads > maxThreads || int64(blocks)*int64(threads) >= blockOf {
		return fmt.Errorf("ptx: %s: a grid of %v blocks of %v threads", k.Name, grid, block)
	}
	if len(params) != k.ParamBytes {
		return fmt.Errorf("ptx: %s: %d bytes of parameters, want %d", k.Name, len(params), k.ParamBytes)
	}
	if shared < 0 || k.Shared+shared > maxShared {
		return fmt.Errorf("ptx: %s: %d bytes of dynamic shared memory and %d of static, want at most %d together", k.Name, shared, k.Shared, maxShared)
	}
	m := &machine{
		kernel: k, memory: memory, grid: grid, block: block, threads: threads, params: params,
		near: make([]*piece, len(k.code)), ran: make([]bool, len(k.code)), rng: rand.New(rand.NewPCG(seed, 0)),
	}
	bytes := k.Shared + shared
	m.shared.Data, m.shared.Written = make([]byte, bytes), make([]byte, bytes)
	m.shared.shadow.perBlock = uint32(threads)
	warps := m.newWarps()
	var err error
	for _, number := range m.rng.Perm(blocks) {
		if err = m.run(warps, number); err != nil {
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.launch++
	for i, ran := range m.ran {
		k.covered[i] = k.covered[i] || ran
	}
	return err
}

// newWarps returns the warps of a block, with everything that is the same in every block.
func (m *machine) newWarps() []*warp {
	var warps []*warp
	for first := 0; first < m.threads; first += warpSize {
		w := &warp{first: first, registers: make([]lanes, m.kernel.registers)}
		fill := func(register int32, value func(thread int) int) {
			for l := range warpSize {
				w.registers[register][l] = uint64(value(first + l))
			}
		}
		for _, c := range m.kernel.constants {
			for l := range warpSize {
				w.registers[c.register][l] = c.value
			}
		}
		for d := range 3 {
			fill(m.kernel.special[d], func(thread int) int { return m.thread(thread)[d] })
			fill(m.kernel.special[3+d], func(int) int { return m.block[d] })
			fill(m.kernel.special[9+d], func(int) int { return m.grid[d] })
		}
		warps = append(warps, w)
	}
	return warps
}

// thread returns the coordinates of a thread in its block.
func (m *machine) thread(n int) [3]int { return coordinates(n, m.block) }

// coordinates converts the number of a thread or block to its coordinates in a box.
func coordinates(n int, box [3]int) [3]int {
	return [3]int{n % box[0], n / box[0] % box[1], n / box[0] / box[1]}
}

// warpThreads returns a mask of the threads of a warp when its block begins.
func (m *machine) warpThreads(w *warp) uint32 { return uint32(ones(min(warpSize, m.threads-w.first))) }

// run runs one block: it repeatedly selects a random warp and runs it for a random number of
// steps.
func (m *machine) run(warps []*warp, number int) error {
	m.number, m.epoch = number, 0
	clear(m.shared.Written)
	clear(m.shared.shadow.words)
	place := coordinates(number, m.grid)
	for _, w := range warps {
		w.live = m.warpThreads(w)
		w.at, w.pc, w.waiting = w.live, 0, false
		for d := range 3 {
			for l := range warpSize {
				w.registers[m.kernel.special[6+d]][l] = uint64(place[d])
			}
		}
	}
	ready := slices.Clone(warps)
	for {
		for len(ready) > 0 {
			i := m.rng.IntN(len(ready))
			w := ready[i]
			if err := m.steps(w, 1+m.rng.IntN(200)); err != nil {
				return err
			}
			if w.waiting || w.live == 0 {
				ready[i] = ready[len(ready)-1]
				ready = ready[:len(ready)-1]
			}
		}
		for _, w := range warps {
			if w.waiting {
				ready = append(ready, w)
			}
		}
		if len(ready) == 0 {
			return nil
		}
		for _, w := range warps {
			if whole := m.warpThreads(w); w.live != whole {
				gone := bits.TrailingZeros32(whole &^ w.live)
				return m.fault(ready[0], ready[0].pc, bits.TrailingZeros32(ready[0].live), "waits at a barrier that thread %v never reaches: it has ended", m.thread(w.first+gone))
			}
		}
		for _, w := range ready {
			if w.pc != ready[0].pc {
				return m.fault(w, w.pc, 0, "waits at a barrier while others of its block wait at the barrier of line %d", m.kernel.code[ready[0].pc].line)
			}
		}
		m.epoch++
		for _, w := range ready {
			w.waiting = false
			w.pc++
		}
	}
}

// fault returns the error of a thread at an instruction.
func (m *machine) fault(w *warp, pc, lane int, format string, args ...any) error {
	return &LaunchError{
		Kernel: m.kernel.Name, Line: m.kernel.code[pc].line, Thread: m.thread(w.first + lane),
		Block:  coordinates(m.number, m.grid),
		Reason: fmt.Sprintf(format, args...),
	}
}

// converge selects the threads that run next: those at the earliest instruction, so that threads
// that took another branch catch up. Threads at a barrier wait for all others.
func (m *machine) converge(w *warp) error {
	pc, barred := -1, -1
	for mask := w.live; mask != 0; mask &= mask - 1 {
		at := w.places[bits.TrailingZeros32(mask)]
		if m.kernel.code[at].kind == barrier {
			if barred >= 0 && barred != at {
				return m.fault(w, at, bits.TrailingZeros32(mask), "waits at a barrier while others of its warp wait at the barrier of line %d", m.kernel.code[barred].line)
			}
			barred = at
		} else if pc < 0 || at < pc {
			pc = at
		}
	}
	if pc < 0 {
		pc = barred
	}
	w.pc, w.at, w.next = pc, 0, len(m.kernel.code)
	for mask := w.live; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask)
		if w.places[l] == pc {
			w.at |= 1 << l
		} else {
			w.next = min(w.next, w.places[l])
		}
	}
	return nil
}

// scatter records pc as the position of the threads in mask.
func (w *warp) scatter(mask uint32, pc int) {
	for ; mask != 0; mask &= mask - 1 {
		w.places[bits.TrailingZeros32(mask)] = pc
	}
}

// steps runs a warp for up to n instructions.
func (m *machine) steps(w *warp, n int) error {
	code := m.kernel.code
	for ; n > 0; n-- {
		in := &code[w.pc]
		if w.at != w.live && (w.pc >= w.next || in.kind == barrier) { // others took another branch and are behind
			w.scatter(w.at, w.pc)
			if err := m.converge(w); err != nil {
				return err
			}
			in = &code[w.pc]
		}
		m.ran[w.pc] = true
		mask := w.at
		if in.predicate >= 0 {
			p := &w.registers[in.predicate]
			chosen := uint32(0)
			for l, v := range p {
				chosen |= uint32(v&1) << l
			}
			if in.negate {
				chosen = ^chosen
			}
			mask &= chosen
		}
		switch in.kind {
		case compute:
			d, a, b, c := &w.registers[in.dst[0]], &w.registers[in.src[0]], &w.registers[in.src[1]], &w.registers[in.src[2]]
			f := in.f
			if mask == 1<<warpSize-1 {
				for l := range d {
					d[l] = f(a[l], b[l], c[l])
				}
			} else {
				for ; mask != 0; mask &= mask - 1 {
					l := bits.TrailingZeros32(mask) & (warpSize - 1)
					d[l] = f(a[l], b[l], c[l])
				}
			}
		case unpack:
			shift := in.size * 4
			for ; mask != 0; mask &= mask - 1 {
				l := bits.TrailingZeros32(mask) & (warpSize - 1)
				v := w.registers[in.src[0]][l]
				w.registers[in.dst[0]][l], w.registers[in.dst[1]][l] = v&(1<<shift-1), v>>shift
			}
		case load, store, atomic:
			if err := m.access(w, in, mask); err != nil {
				return err
			}
		case multiply:
			if mask != 1<<warpSize-1 {
				return m.fault(w, w.pc, bits.TrailingZeros32(mask), "multiplies matrices without some threads of its warp")
			}
			w.multiply(in)
		case branch:
			if mask == w.at {
				w.pc = in.target
				continue
			}
			if mask != 0 {
				if w.at == w.live {
					w.next = len(code)
				}
				w.scatter(mask, in.target)
				w.at, w.next = w.at&^mask, min(w.next, in.target)
			}
		case barrier:
			w.waiting = true
			return nil
		case end:
			w.live &^= mask
			w.at &^= mask
			if w.live == 0 {
				return nil
			}
			if w.at == 0 {
				if err := m.converge(w); err != nil {
					return err
				}
				continue
			}
		}
		w.pc++
	}
	return nil
}

// access performs a load, a store or an atomic for the threads of mask.
func (m *machine) access(w *warp, in *instruction, mask uint32) error {
	size := uint64(in.size) * uint64(in.many)
	bases := &w.registers[in.src[0]]
	for ; mask != 0; mask &= mask - 1 {
		l := bits.TrailingZeros32(mask) & (warpSize - 1)
		address := bases[l] + in.offset
		if address%size != 0 {
			return m.fault(w, w.pc, l, "an access of %d bytes at %#x, which is no multiple of that", size, address)
		}
		var data []byte
		if in.space == param {
			if address+size > uint64(len(m.params)) {
				return m.fault(w, w.pc, l, "reads parameters at %d, which have %d bytes", address, len(m.params))
			}
			data = m.params[address:]
		} else {
			p, err := m.piece(in, w.pc, address)
			if err != nil {
				return m.fault(w, w.pc, l, "%v", err)
			}
			offset := address - p.Base
			if offset+size > uint64(len(p.Data)) || offset+size < offset {
				return m.fault(w, w.pc, l, "out of bounds: %d bytes at %d of %d", size, int64(offset), len(p.Data))
			}
			me := uint32(m.number*m.threads+w.first+l) + 1
			if reason := p.check(offset, int(size), in.kind, me, m.epoch); reason != "" {
				return m.fault(w, w.pc, l, "%s (%d bytes at %d of %d)", reason, size, offset, len(p.Data))
			}
			data = p.Data[offset:]
		}
		if in.kind == atomic {
			old := get(data, in.size, false)
			w.registers[in.dst[0]][l] = old
			put(data, in.size, in.f(old, w.registers[in.src[1]][l], 0))
			continue
		}
		for i := range in.many {
			if in.kind == store {
				put(data[i*in.size:], in.size, w.registers[in.dst[i]][l])
			} else {
				w.registers[in.dst[i]][l] = get(data[i*in.size:], in.size, in.signed)
			}
		}
	}
	return nil
}

// piece returns the memory of an access.
func (m *machine) piece(in *instruction, pc int, address uint64) (*piece, error) {
	if in.space == shared {
		return &m.shared, nil
	}
	if p := m.near[pc]; p != nil && address-p.Base < uint64(len(p.Data)) {
		return p, nil
	}
	for _, p := range m.pieces {
		if address-p.Base < uint64(len(p.Data)) {
			m.near[pc] = p
			return p, nil
		}
	}
	r, err := m.memory.Region(address)
	if err != nil {
		return nil, fmt.Errorf("global memory at %#x: %w", address, err)
	}
	p := &piece{Region: *r, shadow: shadow{perBlock: uint32(m.threads)}}
	m.pieces = append(m.pieces, p)
	m.near[pc] = p
	return p, nil
}

// Pack lays out the parameters of a launch, a word for each with its value in the low bytes.
func (k *Kernel) Pack(args []uint64) ([]byte, error) {
	if len(args) != len(k.Params) {
		return nil, fmt.Errorf("ptx: %s: %d parameters, want %d", k.Name, len(args), len(k.Params))
	}
	params := make([]byte, k.ParamBytes)
	for i, p := range k.Params {
		if p.Size > 8 {
			return nil, fmt.Errorf("ptx: %s: parameter %d has %d bytes, more than a word", k.Name, i, p.Size)
		}
		put(params[p.Offset:], uint8(p.Size), args[i])
	}
	return params, nil
}
