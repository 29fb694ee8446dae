package plantest

func Sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}
