package kernels_test

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// The program allocates, fills, uses and releases a buffer. The device's book has the live
// bytes.
func Example() {
	d, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	alloc := func(n int) kernels.Buffer {
		b, _ := d.Alloc(memory.Activation, kernels.Float32, n)
		return b
	}
	a, b, c := alloc(4), alloc(4), alloc(4)
	_ = d.WriteFloat32(a, []float32{1, 2, 3, 4})
	_ = d.WriteFloat32(b, []float32{1, 0, 0, 2})
	if err := d.MatMul(kernels.MatMul{A: a, B: b, C: c, M: 2, N: 2, K: 2}); err != nil {
		fmt.Println(err)
	}
	result := make([]float32, 4)
	_ = d.ReadFloat32(result, c)
	fmt.Println(result, d.Live(), "bytes live")

	err = d.MatMul(kernels.MatMul{A: a, B: b, C: c, M: 2, N: 2, K: 3})
	fmt.Println(err)
	for _, x := range []kernels.Buffer{a, b, c} {
		_, _ = d.Release(x)
	}
	fmt.Println(d.Live(), "bytes live")
	// Output:
	// [1 4 3 8] 48 bytes live
	// kernels: buffers do not fit the operation: MatMul: A has 4 elements, the operation has 6
	// kernels: buffers do not fit the operation: MatMul: B has 4 elements, the operation has 6
	// 0 bytes live
}

// A dry run on the Null device records the memory behavior of its target.
func ExampleNull() {
	host, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer host.Close()
	d := kernels.NewNull(host)
	defer d.Close()

	x, _ := d.Alloc(memory.Saved, kernels.Float32, 100)
	y, _ := d.Alloc(memory.Activation, kernels.Float32, 100)
	_ = d.GELU(y, x)
	_, _ = d.Release(x)
	for _, e := range d.Record() {
		fmt.Println(e.Serial, e.Class, e.Bytes, e.Alloc)
	}
	fmt.Println("host:", host.Live(), "bytes")
	// Output:
	// 0 saved 400 true
	// 1 activation 400 true
	// 0 saved 400 false
	// host: 0 bytes
}
