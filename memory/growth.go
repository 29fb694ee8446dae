package memory

import "strconv"

// Growth is by how many bytes a microbatch grows at most what is live beyond the plan: 0
// is what must be. Audited says that an allocator's book was compared with the step's;
// without one, memory that a garbage collector owns may grow unseen.
type Growth struct {
	Bytes   int64
	Audited bool
}

// String returns the bytes, and "not audited" where they say nothing.
func (g Growth) String() string {
	if !g.Audited && g.Bytes == 0 {
		return "not audited"
	}
	return strconv.FormatInt(g.Bytes, 10) + " bytes"
}
