package runner

import "hash/fnv"

// Owned returns the elements of a parameter that a replica owns: count elements from first on. A
// long parameter is divided by its parts (Sharded.Parts), in the order of the replicas; a short one
// belongs to one replica, which depends on its name. count is 0 if the replica owns nothing of it.
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
