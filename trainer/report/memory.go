package report

import (
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/units"
)

// ByClass returns the series of n points by class of memory, without resident bytes and without
// empty classes.
func ByClass(mark Mark, n int, point func(i int, class memory.Class) Bucket) (list []Series) {
	for class := range memory.Class(memory.NumClasses) {
		s, most := Series{Name: class.String(), Mark: mark, Color: ClassColor(class)}, 0.0
		for i := range n {
			s.Buckets = append(s.Buckets, point(i, class))
			most = max(most, s.Buckets[i].Max)
		}
		if most > 0 && class != memory.Resident {
			list = append(list, s)
		}
	}
	return list
}

// OwnersTable returns a table with a row for each of n owners of memory, with a bar for the
// owner's fraction of whole, in bytes.
func OwnersTable(title string, whole int64, n int, owner func(i int) (name, class string, bytes int64, buffers int)) Table {
	t := Table{Title: title, Head: []string{"bytes", "buffers", "class", "owner"}, Lead: 3}
	for i := range n {
		name, class, bytes, buffers := owner(i)
		if name == "" {
			name = "(no name)"
		}
		t.Rows = append(t.Rows, []string{units.Exactly(bytes), units.Count(int64(buffers)), class, name})
		t.Shares = append(t.Shares, float64(bytes)/float64(max(whole, 1)))
	}
	return t
}
