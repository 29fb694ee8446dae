package vector_test

import (
	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// sets returns the sets of this processor that the build tags allow.
func sets() []vector.Set {
	list := []vector.Set{vector.Portable}
	if cpufeature.AVX2FMA || cpufeature.NEON {
		list = append(list, vector.AVX2)
	}
	if cpufeature.AVX512 {
		list = append(list, vector.AVX512)
	}
	return list
}
