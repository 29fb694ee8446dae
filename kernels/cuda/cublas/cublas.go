//go:build linux

package cublas

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// Device provides the context in which products run.
type Device interface {
	// Current runs call with the device's context current on its thread.
	Current(call func() error) error
}

// Library is a cuBLAS handle of a device.
type Library struct {
	device  Device
	handle  uintptr
	scalars [2]float32 // 0 and 1, which cuBLAS reads by address
	create, destroy, setStream,
	setWorkspace, gemm uintptr
}

var _ driver.Library = (*Library)(nil)

// names are the file names of the supported versions, newest first.
var names = []string{"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"}

// Open opens cuBLAS for a device. If path is "", the system's loader searches for it. The error
// wraps driver.ErrNoDevice if cuBLAS is not found.
func Open(device Device, path string) (*Library, error) {
	tried := names
	if path != "" {
		tried = []string{path}
	}
	var library uintptr
	var errs []error
	for _, name := range tried {
		found, err := purego.Dlopen(name, purego.RTLD_NOW)
		if err == nil {
			library = found
			break
		}
		errs = append(errs, err)
	}
	if library == 0 {
		return nil, &driver.Error{Call: "cublas.Open", Text: errors.Join(errs...).Error(), Kind: driver.ErrNoDevice}
	}
	l := &Library{device: device, scalars: [2]float32{0, 1}}
	for _, f := range []struct {
		at   *uintptr
		name string
	}{
		{&l.create, "cublasCreate_v2"}, {&l.destroy, "cublasDestroy_v2"}, {&l.setStream, "cublasSetStream_v2"},
		{&l.setWorkspace, "cublasSetWorkspace_v2"}, {&l.gemm, "cublasGemmEx"},
	} {
		var err error
		if *f.at, err = purego.Dlsym(library, f.name); err != nil {
			return nil, &driver.Error{Call: "cublas.Open", Text: err.Error(), Kind: driver.ErrNoDevice}
		}
	}
	if err := l.call("cublasCreate", l.create, uintptr(unsafe.Pointer(&l.handle))); err != nil {
		return nil, err
	}
	return l, nil
}

// kinds maps a cublasStatus_t to a kind of error. All others are ErrInvalid.
var kinds = map[int32]error{3: driver.ErrOutOfMemory, 11: driver.ErrLost, 13: driver.ErrLost}

// call calls a function of the library. Pointers among the arguments must point to memory that
// does not move.
//
//go:uintptrescapes
func (l *Library) call(name string, function uintptr, args ...uintptr) error {
	err := l.device.Current(func() error {
		code, _, _ := purego.SyscallN(function, args...)
		if status := int32(code); status != 0 {
			kind, known := kinds[status]
			if !known {
				kind = driver.ErrInvalid
			}
			return &driver.Error{Call: name, Code: int(status), Text: fmt.Sprintf("cublasStatus_t %d", status), Kind: kind}
		}
		return nil
	})
	var typed *driver.Error
	if err != nil && !errors.As(err, &typed) {
		err = &driver.Error{Call: name, Text: err.Error(), Kind: driver.ErrInvalid}
	}
	return err
}

// Bind sets the stream and then the workspace, because setting a stream resets the workspace.
func (l *Library) Bind(s driver.Stream, workspace driver.Addr, bytes int64) error {
	if err := l.call("cublasSetStream", l.setStream, l.handle, uintptr(s)); err != nil {
		return err
	}
	return l.call("cublasSetWorkspace", l.setWorkspace, l.handle, uintptr(workspace), uintptr(bytes))
}

// The constants CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_COMPUTE_32F_FAST_16BF and
// CUBLAS_GEMM_DEFAULT of cublas_api.h and library_types.h.
const (
	float32s = 0
	pedantic = 69
	bfloat16 = 75
	choose   = ^uintptr(0)
)

// Multiply queues a product. cuBLAS is column-major, so that it sees the transpose of every
// matrix: it computes Cᵀ = op(B)ᵀ·op(A)ᵀ.
func (l *Library) Multiply(op driver.Multiply) error {
	transA, lda := uintptr(0), op.K
	if op.TransA {
		transA, lda = 1, op.M
	}
	transB, ldb := uintptr(0), op.N
	if op.TransB {
		transB, ldb = 1, op.K
	}
	beta, compute := &l.scalars[0], uintptr(pedantic)
	if op.Accumulate {
		beta = &l.scalars[1]
	}
	if op.BFloat16 {
		compute = bfloat16
	}
	return l.call("cublasGemmEx", l.gemm, l.handle, transB, transA, uintptr(op.N), uintptr(op.M), uintptr(op.K),
		uintptr(unsafe.Pointer(&l.scalars[1])), uintptr(op.B), float32s, uintptr(ldb), uintptr(op.A), float32s, uintptr(lda),
		uintptr(unsafe.Pointer(beta)), uintptr(op.C), float32s, uintptr(op.N), compute, choose)
}

// Close destroys the handle. A second Close does nothing.
func (l *Library) Close() error {
	if l.handle == 0 {
		return nil
	}
	handle := l.handle
	l.handle = 0
	return l.call("cublasDestroy", l.destroy, handle)
}
