package kerneltest

import "github.com/weir-ml/weir/kernels"

// Trials returns the names of the trials.
func Trials(d kernels.Compute) (names []string) {
	for _, t := range trials(newLab(d), plain) {
		names = append(names, t.name)
	}
	return names
}
