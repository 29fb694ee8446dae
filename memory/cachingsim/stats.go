package cachingsim

// Stat is a current and a maximum number of bytes.
type Stat struct{ Current, Peak int64 }

func (s *Stat) add(bytes int64) {
	s.Current += bytes
	s.Peak = max(s.Peak, s.Current)
}

// Stats are the values of torch.cuda.memory_stats, summed over both pools.
type Stats struct {
	Requested   Stat // of the blocks in Active, the bytes that Malloc was asked for
	Allocated   Stat // blocks of live allocations, after rounding
	Active      Stat // Allocated, plus blocks that wait for a stream
	Reserved    Stat // segments, or mapped pages
	Segments    int  // allocated with cudaMalloc; 0 for expandable segments
	Retries     int  // allocations retried after the cache was emptied
	OutOfMemory int  // allocations that failed because the device was full
}

// Stats returns the statistics.
func (a *Allocator) Stats() Stats { return a.stats }

// ResetPeaks sets the peaks to the current values.
func (a *Allocator) ResetPeaks() {
	for _, s := range []*Stat{&a.stats.Requested, &a.stats.Allocated, &a.stats.Active, &a.stats.Reserved} {
		s.Peak = s.Current
	}
}
