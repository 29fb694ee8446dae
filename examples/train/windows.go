package main

import (
	"bytes"
	"math/bits"
)

// windows says which bytes of a text a microbatch is made of.
type windows interface {
	// window returns the range [begin, end) of microbatch i; it is not empty.
	window(i int) (begin, end int)
}

// drawn are the windows of a training step. A window begins anywhere; its longest
// length is drawn from half of longest up to longest; it ends early at the end of
// a paragraph where there is one in the second half of that. So lengths are
// uneven. Seed, step and number alone decide, so that a resumed run and any plan
// see the same microbatches (L9).
type drawn struct {
	text    []byte
	longest int
	seed    uint64
	step    int64
}

func (d *drawn) window(i int) (begin, end int) {
	half := (d.longest + 1) / 2
	length := half + below(d.longest-half+1, d.seed, uint64(d.step), uint64(i), 0)
	begin = below(len(d.text)-half+1, d.seed, uint64(d.step), uint64(i), 1)
	end = min(begin+length, len(d.text))
	if paragraph := bytes.LastIndex(d.text[begin+half:end], paragraphEnd); paragraph >= 0 {
		end = begin + half + paragraph + len(paragraphEnd)
	}
	return begin, end
}

var paragraphEnd = []byte("\n\n")

// below returns a number in [0, n) that depends on the keys alone.
func below(n int, keys ...uint64) int {
	var h uint64
	for _, key := range keys { // splitmix64 over the keys (Steele, Lea and Flood 2014)
		h = (h ^ key) + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	high, _ := bits.Mul64(h, uint64(max(n, 1)))
	return int(high)
}

// tiled are windows of one length, side by side over a text, the last one
// shorter. Where there are more than most of them, most are taken, evenly spread.
type tiled struct {
	size   int // of the text in bytes
	length int
	most   int
	first  int // added to every number
}

// count returns the number of windows.
func (t *tiled) count() int { return min(t.all(), t.most) }

func (t *tiled) all() int { return (t.size + t.length - 1) / t.length }

func (t *tiled) window(i int) (begin, end int) {
	begin = (t.first + i) * t.all() / t.count() * t.length
	return begin, min(begin+t.length, t.size)
}
