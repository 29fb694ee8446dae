package memory_test

import (
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

// A kernel that fails to map fresh pages over a range leaves no hole in it: the addresses stay
// reserved, whether it had removed the old pages already or not, and become pages of zeros
// again.
func TestRenewLeavesNoHole(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("ranges are not mapped anew here")
	}
	for name, c := range map[string]struct {
		fails    int  // number of calls that fail, from the first
		halfway  bool // the first call has unmapped the range
		released bool // renew succeeds: the range has fresh pages
	}{
		"nothing":                           {0, false, true},
		"before the old pages are gone":     {1, false, true},
		"when the old pages are gone":       {1, true, true},
		"and again, with nothing to be had": {2, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			const bytes = 4 << 20
			mem, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			require.NoError(t, err)
			defer func() { require.NoError(t, syscall.Munmap(mem)) }()
			mem[0], mem[bytes-1] = 1, 1
			calls := 0
			err = memory.Renew(mem, func(mem []byte, prot, how uintptr) error {
				if calls++; calls > c.fails {
					return memory.MapAt(mem, prot, how)
				}
				if c.halfway && calls == 1 {
					_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, uintptr(unsafe.Pointer(&mem[0])), bytes, 0)
				}
				return syscall.ENOMEM
			})
			if c.released {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, syscall.ENOMEM)
			}
			require.ErrorIs(t, memory.MapAt(mem, syscall.PROT_NONE, memory.MapFixedNoreplace), syscall.EEXIST, "the addresses are mapped")
			require.NoError(t, memory.System{}.Populate(mem))
			require.Zero(t, mem[0])
			require.Zero(t, mem[bytes-1])
			mem[0], mem[bytes-1] = 1, 1
		})
	}
}
