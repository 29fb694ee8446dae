package replicas

import "hash/fnv"

// Divider divides parameters into parts: see runner.Sharded.
type Divider interface {
	Parts(n int) int
	Bound(n, part int) int
}

// ShardRange is runner.ShardRange.
func ShardRange(d Divider, name string, n, replica, replicas int) (first, count int) {
	owned := elementsOf(d, n, partsOf(d, name, n, replica, replicas))
	return owned.first, owned.count
}

// span is a range of the parts or of the elements of a parameter.
type span struct{ first, count int }

// of returns the elements of the span in the bytes of a whole parameter in float32.
func (s span) of(whole []byte) []byte { return whole[4*s.first:][:4*s.count] }

// elementsOf returns the elements in parts of a parameter of n elements.
func elementsOf(d Divider, n int, parts span) span {
	first := d.Bound(n, parts.first)
	return span{first, d.Bound(n, parts.first+parts.count) - first}
}

// partsOf returns the parts of a parameter of n elements that a replica owns.
func partsOf(d Divider, name string, n, replica, replicas int) span {
	parts := d.Parts(n)
	if parts > 1 {
		first := parts * replica / replicas
		return span{first, parts*(replica+1)/replicas - first}
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name)) // Write never fails.
	if int(sum.Sum32()%uint32(replicas)) == replica {
		return span{0, 1}
	}
	return span{}
}
