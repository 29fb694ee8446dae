package cachingsim

// Stat is a number of bytes now, and the most there ever was.
type Stat struct{ Current, Peak int64 }

func (s *Stat) add(bytes int64) {
	s.Current += bytes
	s.Peak = max(s.Peak, s.Current)
}

// Stats are what torch.cuda.memory_stats tells, all of both pools together.
type Stats struct {
	Requested   Stat // as asked for
	Allocated   Stat // blocks of live allocations, as rounded
	Active      Stat // and of those that wait for a stream
	Reserved    Stat // segments, or mapped pages
	Segments    int  // got with cudaMalloc; where segments expand it stays 0
	Retries     int  // of the device after the cache was emptied
	OutOfMemory int
}

// Stats returns the statistics.
func (a *Allocator) Stats() Stats { return a.stats }

// ResetPeaks begins the peaks anew.
func (a *Allocator) ResetPeaks() {
	for _, s := range []*Stat{&a.stats.Requested, &a.stats.Allocated, &a.stats.Active, &a.stats.Reserved} {
		s.Peak = s.Current
	}
}
