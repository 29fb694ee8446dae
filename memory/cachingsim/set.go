package cachingsim

import (
	"cmp"
	"slices"
)

// set is an ordered set of blocks.
type set struct {
	order  func(a, b *block) int
	blocks []*block
}

// bySize orders blocks by stream, size and address.
func bySize(a, b *block) int {
	return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.size, b.size), cmp.Compare(a.address, b.address))
}

// byAddress orders unmapped blocks by stream and address.
func byAddress(a, b *block) int {
	return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.address, b.address))
}

// search returns the index of the first block that is not ordered before a key, or the number of blocks.
func (s *set) search(key block) int {
	i, _ := slices.BinarySearchFunc(s.blocks, &key, s.order)
	return i
}

// at returns the block at an index, or nil if there is none or it belongs to another stream.
func (s *set) at(i int, stream int64) *block {
	if i < 0 || i >= len(s.blocks) || s.blocks[i].stream != stream {
		return nil
	}
	return s.blocks[i]
}

func (s *set) insert(b *block) { s.blocks = slices.Insert(s.blocks, s.search(*b), b) }

func (s *set) delete(b *block) {
	i := s.search(*b)
	s.blocks = slices.Delete(s.blocks, i, i+1)
}
