package memory

import "hash/maphash"

// table maps handles to their counts, by linear probing. A built-in map has one disadvantage: it leaves
// tombstones for deleted keys, so it sometimes grows although it holds no more keys than before. This
// table allocates only when it holds more handles than ever before (L7, L11).
type table[T comparable] struct {
	seed    maphash.Seed
	entries []entry[T] // the length is a power of two; at least half of them are empty
	used    int
}

// entry is a handle with its count. The zero T marks an empty entry.
type entry[T comparable] struct {
	handle T
	hash   uint64
	count  count
}

// find returns the index of h in entries, or false if the table does not contain h.
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

// place puts an entry into the first empty slot at or after its own.
func (t *table[T]) place(e entry[T]) {
	var zero T
	mask := len(t.entries) - 1
	i := int(e.hash) & mask
	for t.entries[i].handle != zero {
		i = (i + 1) & mask
	}
	t.entries[i] = e
}

// remove empties entry i and moves later entries that were displaced by it, so that no search
// encounters a gap.
func (t *table[T]) remove(i int) {
	var zero T
	t.used--
	mask := len(t.entries) - 1
	for j := (i + 1) & mask; t.entries[j].handle != zero; j = (j + 1) & mask {
		// Entry j may move to i unless its own slot is after i.
		if own := int(t.entries[j].hash) & mask; (j-own)&mask >= (j-i)&mask {
			t.entries[i] = t.entries[j]
			i = j
		}
	}
	t.entries[i] = entry[T]{}
}
