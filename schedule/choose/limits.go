package choose

import "strconv"

// limit is a number of bytes on a rank, and its name: as how many microbatches it has
// room for, or that it is all that there is.
type limit struct {
	bytes int64
	name  string
}

// limits returns those under which orders are searched: from half as many microbatches
// as there are ranks to twice as many, and the memory that there is.
func (s *shop) limits(r *Request) (list []limit) {
	var one, fixed int64 // bytes of a microbatch, and what is there besides
	for rank, on := range s.on {
		var saved int64
		for _, b := range on {
			saved += s.bytes[taskOf(b, forward)].net
		}
		one, fixed = max(one, saved), max(fixed, s.base[rank]+s.spare[rank])
	}
	memory := r.Memory
	if memory == 0 || !r.saves() {
		memory = maxSum
	}
	steps := []int{4, 5, 6, 7, 8, 10, 12, 16} // eighths of the ranks
	if s.length() > longOrder {
		steps = []int{4, 6, 8, 16}
	}
	last := 0
	for _, eighths := range steps {
		n := min((r.Ranks*eighths+7)/8, r.Microbatches)
		if bytes := fixed + int64(n)*one; n > last && bytes <= memory {
			list = append(list, limit{bytes, "cap " + strconv.Itoa(n)})
			last = n
		}
	}
	if fixed+int64(min(2*r.Ranks, r.Microbatches))*one > memory {
		list = append(list, limit{memory, "all memory"})
	}
	return list
}
