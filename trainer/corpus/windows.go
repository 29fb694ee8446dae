package corpus

import (
	"bytes"
	"math/bits"
)

// Windows defines which bytes or tokens of a text each microbatch has.
type Windows interface {
	// Window returns the range [begin, end) of microbatch i; it is not empty.
	Window(i int) (begin, end int)
}

// Drawn are the windows of a training step. A window begins anywhere except in the last half of Longest. Its
// maximum length is drawn from half of Longest to Longest. It ends earlier at the end of the text, and at the
// last end of a paragraph that leaves it half of Longest. Thus the lengths differ. A window depends only on the
// text, Seed, Step and its number, so a resumed run and any plan use the same microbatches (L9).
type Drawn struct {
	Text    []byte // longer than Longest; nil if windows do not end at paragraphs, as with tokens
	Size    int    // size of the sequence if Text is nil
	Longest int
	Seed    uint64
	Step    int64
}

// Window returns the range of microbatch i.
func (d *Drawn) Window(i int) (begin, end int) {
	half := (d.Longest + 1) / 2
	length := half + draw(d.Longest-half+1, d.Seed, uint64(d.Step), uint64(i), 0)
	size := max(len(d.Text), d.Size)
	begin = draw(size-half+1, d.Seed, uint64(d.Step), uint64(i), 1)
	if end = min(begin+length, size); d.Text == nil {
		return begin, end
	}
	if paragraph := bytes.LastIndex(d.Text[begin+half:end], paragraphEnd); paragraph >= 0 {
		end = begin + half + paragraph + len(paragraphEnd)
	}
	return begin, end
}

var paragraphEnd = []byte("\n\n")

// draw returns a number in [0, n) that depends only on the keys.
func draw(n int, keys ...uint64) int {
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

// Documents are the windows of a training step over whole documents. The choice of a document depends only on
// Seed, Step and the number of the window (L9). A document that is longer than a limit is cut into pieces. The
// last token of a document is in no window, because no token follows it.
type Documents struct {
	Seed   uint64
	Step   int64
	pieces [][2]int // begin and end
}

// NewDocuments returns the documents that end at the given positions of a text, in pieces of at most
// longest tokens.
func NewDocuments(ends []int, longest int, seed uint64) *Documents {
	d, begin := &Documents{Seed: seed}, 0
	for _, end := range ends {
		for ; begin < end-1; begin = min(begin+longest, end-1) {
			d.pieces = append(d.pieces, [2]int{begin, min(begin+longest, end-1)})
		}
		begin = end
	}
	return d
}

// Count returns the number of documents and pieces.
func (d *Documents) Count() int { return len(d.pieces) }

// Window returns the range of sequence i.
func (d *Documents) Window(i int) (begin, end int) {
	p := d.pieces[draw(len(d.pieces), d.Seed, uint64(d.Step), uint64(i), 2)]
	return p[0], p[1]
}

// Tiled are adjacent windows of equal length over a text; the last one may be shorter. If there are more than
// Most windows, Tiled uses Most of them, evenly spread.
type Tiled struct {
	Size   int // of the text, in bytes or tokens
	Length int
	Most   int
	First  int // added to every argument of Window
}

// Count returns the number of windows.
func (t *Tiled) Count() int { return min(t.all(), t.Most) }

func (t *Tiled) all() int { return (t.Size + t.Length - 1) / t.Length }

// Window returns the range of window First + i.
func (t *Tiled) Window(i int) (begin, end int) {
	begin = (t.First + i) * t.all() / t.Count() * t.Length
	return begin, min(begin+t.Length, t.Size)
}
