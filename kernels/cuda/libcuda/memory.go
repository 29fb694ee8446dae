//go:build cuda

package libcuda

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// result is a CUresult of the library.
type result int

func (r result) Error() string { return fmt.Sprintf("CUresult %d", int(r)) }

// answer converts the result of a call to an error. The other values are not used.
func answer(code, _, _ uintptr) error {
	if int32(code) != 0 {
		return result(int32(code))
	}
	return nil
}

// The structs CUmemLocation, CUmemAllocationProp and CUmemAccessDesc of cuda.h.
type (
	location   struct{ kind, id int32 }
	allocation struct {
		kind, handles int32
		where         location
		windows       uintptr
		flags         [8]byte
	}
	access struct {
		where location
		flags int32
	}
)

const (
	onDevice  = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	pinned    = 1 // CU_MEM_ALLOCATION_TYPE_PINNED
	readWrite = 3 // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
	portable  = 1 // CU_MEMHOSTALLOC_PORTABLE
	minimum   = 0 // CU_MEM_ALLOC_GRANULARITY_MINIMUM
)

// granularity returns the size of the smallest page in bytes.
func (d *Driver) granularity() (int64, error) {
	a := allocation{kind: pinned, where: d.where}
	var bytes uintptr
	err := answer(purego.SyscallN(d.library.granularity, uintptr(unsafe.Pointer(&bytes)), uintptr(unsafe.Pointer(&a)), minimum))
	return int64(bytes), err
}

// Reserve reserves a range of addresses.
func (d *Driver) Reserve(bytes int64) (at driver.Addr, err error) {
	err = d.do("Reserve", func() error {
		return answer(purego.SyscallN(d.library.reserve, uintptr(unsafe.Pointer(&at)), uintptr(bytes), 0, 0, 0))
	})
	return at, err
}

// Unreserve releases a range.
func (d *Driver) Unreserve(at driver.Addr, bytes int64) error {
	return d.do("Unreserve", func() error {
		return answer(purego.SyscallN(d.library.unreserve, uintptr(at), uintptr(bytes)))
	})
}

// Map allocates memory for each page, maps it, and drops its own reference: the memory lives as
// long as it is mapped.
func (d *Driver) Map(at driver.Addr, bytes, page int64) error {
	return d.do("Map", func() error {
		d.mapping.Lock()
		defer d.mapping.Unlock()
		a := allocation{kind: pinned, where: d.where}
		var err error
		mapped := int64(0)
		for ; mapped < bytes && err == nil; mapped += page {
			err = d.mapOne(at+driver.Addr(mapped), page, &a)
		}
		if err != nil {
			mapped -= page // that one failed
		} else {
			err = d.allow(at, bytes, d.readers)
		}
		if err != nil {
			_ = d.unmap(at, mapped, page) // the first error is reported
		}
		return err
	})
}

func (d *Driver) mapOne(at driver.Addr, page int64, a *allocation) error {
	var made uint64
	if err := answer(purego.SyscallN(d.library.create, uintptr(unsafe.Pointer(&made)), uintptr(page), uintptr(unsafe.Pointer(a)), 0)); err != nil {
		return err
	}
	err := answer(purego.SyscallN(d.library.mapAt, uintptr(at), uintptr(page), 0, uintptr(made), 0))
	if err == nil {
		d.mapped[at] = page
	}
	if let := answer(purego.SyscallN(d.library.release, uintptr(made))); err == nil && let != nil {
		_ = d.unmap(at, page, page) // the first error is reported
		err = let
	}
	return err
}

func (d *Driver) allow(at driver.Addr, bytes int64, who []access) error {
	return answer(purego.SyscallN(d.library.access, uintptr(at), uintptr(bytes), uintptr(unsafe.Pointer(&who[0])), uintptr(len(who))))
}

// grant gives another device access to the pages that are mapped, and to those that Map maps
// later: cuCtxEnablePeerAccess does not cover pages of cuMemCreate.
func (d *Driver) grant(to location) (err error) {
	d.mapping.Lock()
	defer d.mapping.Unlock()
	may := access{where: to, flags: readWrite}
	if slices.Contains(d.readers, may) {
		return nil
	}
	for at, bytes := range d.mapped {
		if err = d.allow(at, bytes, []access{may}); err != nil {
			return err
		}
	}
	d.readers = append(d.readers, may)
	return nil
}

// Unmap releases the memory of pages.
func (d *Driver) Unmap(at driver.Addr, bytes, page int64) error {
	d.mapping.Lock()
	defer d.mapping.Unlock()
	return d.do("Unmap", func() error { return d.unmap(at, bytes, page) })
}

func (d *Driver) unmap(at driver.Addr, bytes, page int64) (err error) {
	for off := int64(0); off < bytes && err == nil; off += page {
		if err = answer(purego.SyscallN(d.library.unmap, uintptr(at)+uintptr(off), uintptr(page))); err == nil {
			delete(d.mapped, at+driver.Addr(off))
		}
	}
	return err
}

// HostAlloc allocates page-locked memory.
func (d *Driver) HostAlloc(bytes int) (mem []byte, err error) {
	var at unsafe.Pointer
	err = d.do("HostAlloc", func() error {
		return answer(purego.SyscallN(d.library.hostAlloc, uintptr(unsafe.Pointer(&at)), uintptr(bytes), portable))
	})
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), bytes), nil
}

// HostFree releases page-locked memory.
func (d *Driver) HostFree(mem []byte) error {
	return d.do("HostFree", func() error {
		return answer(purego.SyscallN(d.library.hostFree, uintptr(unsafe.Pointer(unsafe.SliceData(mem)))))
	})
}
