package cpufeature_test

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
)

// TestAgreesWithTheSystem compares with the flags that Linux reports. Exactly the features that
// Linux reports and no build tag disables must be reported here.
func TestAgreesWithTheSystem(t *testing.T) {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || runtime.GOARCH != "amd64" {
		t.Skip("no flags of an amd64 processor to read")
	}
	var flags []string
	for line := range strings.Lines(string(info)) {
		if strings.HasPrefix(line, "flags") {
			flags = strings.Fields(line)
			break
		}
	}
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(flags, name) })
	}
	avx2 := has("avx", "avx2", "fma")
	avx512 := avx2 && has("avx512f", "avx512bw", "avx512dq", "avx512vl")
	require.Equal(t, [2]bool{avx2 && !pure, avx512 && !pure && !no512}, [2]bool{cpufeature.AVX2FMA, cpufeature.AVX512})
}
