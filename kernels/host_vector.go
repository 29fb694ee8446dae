package kernels

import (
	"github.com/weir-ml/weir/internal/cpufeature"
	"github.com/weir-ml/weir/internal/vector"
)

// vectorSet returns the widest instructions of this processor.
func vectorSet() vector.Set {
	switch {
	case cpufeature.AVX512:
		return vector.AVX512
	case cpufeature.AVX2FMA:
		return vector.AVX2
	}
	return vector.Portable
}
