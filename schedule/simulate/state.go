package simulate

// snapshot is the state of a simulation in which nothing is laid aside.
type snapshot struct {
	ranks   []simRank
	free    []simLink
	boxes   []boxed
	parcels []parcel // of all mailboxes
	piles   []pile   // of all mailboxes
}

// boxed is a mailbox in a snapshot.
type boxed struct {
	head, tail, stop uint
	parcels, piles   int // where they begin in the snapshot
}

// size returns how many parcels the mailbox has, but for piles.
func (b *boxed) size() uint { return b.tail - b.head }

// keep takes a snapshot.
func (k *snapshot) keep(s *simulation) {
	k.ranks = append(k.ranks[:0], s.ranks...)
	k.free = append(k.free[:0], s.free...)
	k.boxes, k.parcels, k.piles = k.boxes[:0], k.parcels[:0], k.piles[:0]
	for i := range s.boxes {
		b := &s.boxes[i]
		k.boxes = append(k.boxes, boxed{b.head, b.tail, b.stop, len(k.parcels), len(k.piles)})
		for n := b.head; n != b.tail; n++ {
			k.parcels = append(k.parcels, *b.at(n))
		}
		k.piles = append(k.piles, b.piles...)
	}
}

// resume goes back to the snapshot.
func (k *snapshot) resume(s *simulation) {
	copy(s.ranks, k.ranks)
	copy(s.free, k.free)
	for i := range s.boxes {
		b, was := &s.boxes[i], &k.boxes[i]
		b.head, b.tail, b.stop = was.head, was.tail, was.stop
		for n := b.head; n != b.tail; n++ {
			*b.at(n) = k.parcels[was.parcels+int(n-b.head)]
		}
		b.piles = append(b.piles[:0], k.pilesOf(i)...)
	}
	clear(s.aside)
	s.unclear, s.fault = false, nil
}

// pilesOf returns the piles of a mailbox.
func (k *snapshot) pilesOf(i int) []pile {
	end := len(k.piles)
	if i+1 < len(k.boxes) {
		end = k.boxes[i+1].piles
	}
	return k.piles[k.boxes[i].piles:end]
}

// parcel returns the parcel of a number in a mailbox.
func (k *snapshot) parcel(i int, number uint) parcel {
	return k.parcels[k.boxes[i].parcels+int(number-k.boxes[i].head)]
}
