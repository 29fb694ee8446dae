package choose

import "strconv"

// limit is a number of bytes on a rank. Its name gives the number of microbatches for which the bytes
// suffice, or says that it is the whole memory.
type limit struct {
	bytes int64
	name  string
}

// limits returns the limits under which to search for orders: the bytes for between half and twice as
// many microbatches as ranks, and the whole memory if that is less.
func (s *jobShop) limits(r *Request) (list []limit) {
	var microbatch, fixed int64 // bytes of a microbatch, and bytes that do not depend on microbatches
	for rank, blocks := range s.blocksOn {
		var saved int64
		for _, b := range blocks {
			saved += s.bytes[taskOf(b, forward)].net
		}
		microbatch, fixed = max(microbatch, saved), max(fixed, s.resident[rank]+s.workspace[rank])
	}
	memory := r.Memory
	if memory == 0 || !r.saves() {
		memory = maxSum
	}
	steps := []int{4, 5, 6, 7, 8, 10, 12, 16} // eighths of the ranks
	if s.tasks() > longOrder {
		steps = []int{4, 6, 8, 16}
	}
	last := 0
	for _, eighths := range steps {
		n := min((r.Ranks*eighths+7)/8, r.Microbatches)
		if bytes := fixed + int64(n)*microbatch; n > last && bytes <= memory {
			list = append(list, limit{bytes, "cap " + strconv.Itoa(n)})
			last = n
		}
	}
	if fixed+int64(min(2*r.Ranks, r.Microbatches))*microbatch > memory {
		list = append(list, limit{memory, "at the limit"})
	}
	return list
}
