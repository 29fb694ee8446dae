package memory

import "hash/maphash"

// table maps handles to their counts, by linear probing. A built-in map would
// do but for one thing: it leaves tombstones where it deletes, and now and then
// grows although it never holds more than before. This table allocates when it
// holds more handles than ever, and at no other time (L7, L11).
type table[T comparable] struct {
	seed    maphash.Seed
	entries []entry[T] // as many as a power of two, half of them empty at least
	used    int
}

// entry is a handle and what is known about it. The zero T marks an empty one.
type entry[T comparable] struct {
	handle T
	hash   uint64
	count  count
}

// find returns the index of h, or reports false.
func (t *table[T]) find(h T) (int, bool) {
	var zero T
	hash := maphash.Comparable(t.seed, h)
	mask := len(t.entries) - 1
	for i := int(hash) & mask; ; i = (i + 1) & mask {
		switch e := &t.entries[i]; {
		case e.handle == zero:
			return 0, false
		case e.hash == hash && e.handle == h:
			return i, true
		}
	}
}

// insert adds a handle that is not in the table.
func (t *table[T]) insert(h T, n count) {
	if t.used++; 2*t.used > len(t.entries) {
		old := t.entries
		t.entries = make([]entry[T], 2*len(old))
		var zero T
		for i := range old {
			if old[i].handle != zero {
				t.place(old[i])
			}
		}
	}
	t.place(entry[T]{h, maphash.Comparable(t.seed, h), n})
}

// place puts an entry into the first empty place from its own on.
func (t *table[T]) place(e entry[T]) {
	var zero T
	mask := len(t.entries) - 1
	i := int(e.hash) & mask
	for t.entries[i].handle != zero {
		i = (i + 1) & mask
	}
	t.entries[i] = e
}

// remove empties entry i and moves entries behind it that it had pushed out of
// their place, so that every search still meets no gap.
func (t *table[T]) remove(i int) {
	var zero T
	t.used--
	mask := len(t.entries) - 1
	for j := (i + 1) & mask; t.entries[j].handle != zero; j = (j + 1) & mask {
		// Entry j may move to i where its own place is not behind i.
		if own := int(t.entries[j].hash) & mask; (j-own)&mask >= (j-i)&mask {
			t.entries[i] = t.entries[j]
			i = j
		}
	}
	t.entries[i] = entry[T]{}
}
