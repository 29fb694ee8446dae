package instances

import (
	"flag"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/weir-ml/weir/memory/placement"
)

// Random returns buffers of random sizes and lifetimes, some with gaps and alignments.
func Random(rng *rand.Rand, n int, gaps, aligned bool) *placement.Problem {
	p := &placement.Problem{}
	for range n {
		b := placement.Buffer{Lower: rng.Int64N(int64(2 * n)), Size: 1 + rng.Int64N(1000)}
		b.Upper = b.Lower + 1 + rng.Int64N(40)
		if aligned && rng.IntN(2) == 0 {
			b.Align = 1 << rng.IntN(8)
		}
		for at := b.Lower; gaps && rng.IntN(3) == 0; {
			g := placement.Gap{Lower: at + 1 + rng.Int64N(5)}
			g.Upper = g.Lower + 1 + rng.Int64N(5)
			if g.Upper >= b.Upper {
				break
			}
			b.Gaps = append(b.Gaps, g)
			at = g.Upper
		}
		p.Buffers = append(p.Buffers, b)
	}
	return p
}

// Guillotine cuts a rectangle of time and bytes into n buffers; each cut goes all the way through a
// piece. The buffers can be packed without a hole.
func Guillotine(rng *rand.Rand, time, bytes int64, n int) *placement.Problem {
	pieces := []placement.Buffer{{Upper: time, Size: bytes}}
	for len(pieces) < n {
		k := rng.IntN(len(pieces))
		b := &pieces[k]
		other := *b
		switch duration := b.Upper - b.Lower; {
		case duration > 1 && (rng.IntN(2) == 0 || b.Size == 1):
			cut := b.Lower + 1 + rng.Int64N(duration-1)
			b.Upper, other.Lower = cut, cut
		case b.Size > 1:
			cut := 1 + rng.Int64N(b.Size-1)
			b.Size, other.Size = cut, b.Size-cut
		default:
			continue
		}
		pieces = append(pieces, other)
	}
	rng.Shuffle(len(pieces), func(i, k int) { pieces[i], pieces[k] = pieces[k], pieces[i] })
	return &placement.Problem{Buffers: pieces}
}

// Pinwheels returns squares of 20 bytes by 20 units of time, one after another, each cut into
// five buffers: four around a central one. No cut goes all the way through a square. The buffers can be
// packed without a hole.
func Pinwheels(rng *rand.Rand, count int) *placement.Problem {
	p := &placement.Problem{}
	for k := range int64(count) {
		t := 20 * k
		a, b := 1+rng.Int64N(8), 1+rng.Int64N(8)   // start of the central buffer, in time and bytes
		c, d := 10+rng.Int64N(9), 10+rng.Int64N(9) // its end
		p.Buffers = append(p.Buffers,
			placement.Buffer{Lower: t, Upper: t + c, Size: b},           // below
			placement.Buffer{Lower: t + c, Upper: t + 20, Size: d},      // on the right
			placement.Buffer{Lower: t + a, Upper: t + 20, Size: 20 - d}, // above
			placement.Buffer{Lower: t, Upper: t + a, Size: 20 - b},      // on the left
			placement.Buffer{Lower: t + a, Upper: t + c, Size: d - b},   // in the middle
		)
	}
	rng.Shuffle(len(p.Buffers), func(i, k int) { p.Buffers[i], p.Buffers[k] = p.Buffers[k], p.Buffers[i] })
	return p
}

// Training returns the buffers of one training step of a transformer on one device, the step that allocates
// the optimizer state. Every layer saves activations for its backward, which begins with the last layer, and some
// are freed a layer later; gradients live to the end. If rng is not nil, every size differs, as the sizes
// of experts depend on their numbers of tokens.
func Training(rng *rand.Rand, layers int, width int64) *placement.Problem {
	p := &placement.Problem{}
	now := int64(0)
	alloc := func(bytes int64) int {
		now++
		if rng != nil && bytes > 4096 {
			bytes -= 512 * rng.Int64N(bytes/1024)
		}
		p.Buffers = append(p.Buffers, placement.Buffer{Lower: now, Size: bytes})
		return len(p.Buffers) - 1
	}
	free := func(buffers ...int) {
		for _, b := range buffers {
			now++
			p.Buffers[b].Upper = now
		}
	}
	saved := make([][]int, layers)
	kept := []int{}
	for l := range saved {
		kept = append(kept, alloc(width/2), alloc(width/8), alloc(64))
		norm := alloc(width)
		qkv := alloc(3 * width)
		scores := alloc(4 * width)
		scratch := alloc(3 * width)
		mixed := alloc(width)
		free(scores, scratch)
		wide := alloc(4 * width)
		act := alloc(4 * width)
		narrow := alloc(width)
		free(mixed)
		saved[l] = []int{norm, qkv, wide, act, narrow, alloc(16), alloc(64)}
	}
	logits := alloc(3 * width)
	softmax := alloc(3 * width)
	gradient := alloc(width)
	free(logits, softmax)
	late := []int{}
	for _, s := range slices.Backward(saved) {
		free(late...)
		late = s[:2]
		d := alloc(4 * width)
		again := alloc(4 * width)
		free(s[4], s[3])
		kept = append(kept, alloc(width))
		free(again, s[2])
		scores := alloc(4 * width)
		other := alloc(4 * width)
		next := alloc(width)
		free(scores, d, gradient, s[5], s[6], other)
		gradient = next
	}
	free(gradient)
	free(late...)
	free(kept...)
	return p
}

// Reversed returns a copy of p in which time runs backwards.
func Reversed(p *placement.Problem) *placement.Problem {
	q := &placement.Problem{}
	for _, b := range p.Buffers {
		b.Lower, b.Upper = -b.Upper, -b.Lower
		b.Gaps = slices.Clone(b.Gaps)
		slices.Reverse(b.Gaps)
		for i, g := range b.Gaps {
			b.Gaps[i] = placement.Gap{Lower: -g.Upper, Upper: -g.Lower}
		}
		q.Buffers = append(q.Buffers, b)
	}
	return q
}

// Shuffled returns a copy of p with its buffers in random order.
func Shuffled(rng *rand.Rand, p *placement.Problem) *placement.Problem {
	q := &placement.Problem{Buffers: slices.Clone(p.Buffers)}
	rng.Shuffle(len(q.Buffers), func(i, k int) { q.Buffers[i], q.Buffers[k] = q.Buffers[k], q.Buffers[i] })
	return q
}

// Scaled returns a copy of p with all times multiplied by time and all sizes by bytes.
func Scaled(p *placement.Problem, time, bytes int64) *placement.Problem {
	q := &placement.Problem{}
	for _, b := range p.Buffers {
		b.Lower, b.Upper, b.Size = b.Lower*time, b.Upper*time, b.Size*bytes
		b.Gaps = slices.Clone(b.Gaps)
		for i, g := range b.Gaps {
			b.Gaps[i] = placement.Gap{Lower: g.Lower * time, Upper: g.Upper * time}
		}
		q.Buffers = append(q.Buffers, b)
	}
	return q
}

// Alive reports whether a buffer needs its bytes at a time.
func Alive(b *placement.Buffer, time int64) bool {
	for _, g := range b.Gaps {
		if g.Lower <= time && time < g.Upper {
			return false
		}
	}
	return b.Lower <= time && time < b.Upper
}

// Meet reports whether two buffers need their bytes at the same time. It is enough to test the times
// at which one of them is allocated: its Lower, and the end of each of its gaps.
func Meet(a, b *placement.Buffer) bool {
	for _, x := range []*placement.Buffer{a, b} {
		times := []int64{x.Lower}
		for _, g := range x.Gaps {
			times = append(times, g.Upper)
		}
		for _, time := range times {
			if Alive(a, time) && Alive(b, time) {
				return true
			}
		}
	}
	return false
}

var folder = flag.String("instances", "", "the folder of published instances")

// Published returns the folder of published instances, by default one next to the module, or "" if there
// is none.
func Published() string {
	if *folder != "" {
		return *folder
	}
	for _, up := range []string{"../../..", "../../../.."} {
		if found, _ := filepath.Glob(up + "/*/data/placement"); len(found) > 0 { // the pattern is valid
			return found[0]
		}
	}
	return ""
}
