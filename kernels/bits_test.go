package kernels_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// TestBitsOfEverySystem compares the results of all operations with the results on amd64, on
// every architecture: those of plain Go, and those of assembly with fused multiply-adds, which
// are the same for AVX2, AVX-512 and NEON. The log has the hash of each operation.
func TestBitsOfEverySystem(t *testing.T) {
	for _, set := range []kernels.Instructions{kernels.Portable, kernels.AVX2, kernels.AVX512, kernels.NEON} {
		if !set.Available() {
			continue
		}
		b := newBenchWith(t, kernels.HostConfig{Instructions: set})
		results := b.outcome(b.operations(101, 70, 5, 1100))
		sum := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(results)) {
			of := sha256.New()
			require.NoError(t, binary.Write(of, binary.LittleEndian, results[name]))
			t.Logf("%s: %s has %x", set, name, of.Sum(nil)[:4])
			sum.Write(of.Sum(nil))
		}
		want := "377cd75cf107b0a0"
		if set == kernels.Portable {
			want = "058a18e661d49a2b"
		}
		require.Equal(t, want, hex.EncodeToString(sum.Sum(nil))[:16], set)
	}
}
