package runner

import "github.com/weir-ml/weir/schedule/runner/internal/replicas"

// ShardRange returns the elements of a parameter of n elements that one of total replicas owns: count
// elements, starting at first. The replicas divide up a parameter's parts (Sharded.Parts) in order. A
// parameter with one part belongs to a single replica, chosen by the parameter's name. count is 0 if
// the replica owns no elements.
func ShardRange[T any](s Sharded[T], name string, n, replica, total int) (first, count int) {
	return replicas.ShardRange(s, name, n, replica, total)
}
