package transporttest

// CheckOne runs the test of one part of the contract.
func CheckOne[T any](subject Subject[T], name string) []Fault {
	for _, test := range tests[T]() {
		if test.name == name {
			return subject.check(test)
		}
	}
	return nil
}
