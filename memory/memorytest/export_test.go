package memorytest

// CheckNames returns the names of all checks.
func CheckNames() []string {
	var names []string
	for _, c := range checks[int]() {
		names = append(names, c.name)
	}
	return names
}
