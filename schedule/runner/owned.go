package runner

import "hash/fnv"

// Owned returns the elements of a parameter of n elements that a replica owns: count elements,
// starting at first. The replicas divide up a parameter's parts (Sharded.Parts) in order. A parameter
// with one part belongs to a single replica, chosen by the parameter's name. count is 0 if the
// replica owns no elements.
func Owned[T any](s Sharded[T], name string, n, replica, replicas int) (first, count int) {
	part, parts := ownedParts(s, name, n, replica, replicas)
	first = s.Bound(n, part)
	return first, s.Bound(n, part+parts) - first
}

// ownedParts returns the parts of a parameter of n elements that a replica owns.
func ownedParts[T any](s Sharded[T], name string, n, replica, replicas int) (first, count int) {
	parts := s.Parts(n)
	if parts > 1 {
		first = parts * replica / replicas
		return first, parts*(replica+1)/replicas - first
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name)) // Write never fails.
	if int(sum.Sum32()%uint32(replicas)) == replica {
		return 0, 1
	}
	return 0, 0
}
