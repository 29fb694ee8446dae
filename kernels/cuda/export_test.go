package cuda

import (
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// Axpy queues y += a·x, with the kernel of package ptx's tests.
func (d *Device) Axpy(y, x kernels.Buffer, a uint64, n int) error {
	toY, err := d.at(y)
	if err != nil {
		return err
	}
	toX, err := d.at(x)
	if err != nil {
		return err
	}
	return d.launch("axpy", [3]uint32{uint32(n+31) / 32, 1, 1}, [3]uint32{32, 1, 1}, uint64(toY), uint64(toX), a, uint64(n))
}

// Address returns the address of a buffer.
func (d *Device) Address(b kernels.Buffer) (uint64, error) {
	at, err := d.at(b)
	return uint64(at), err
}

// AddLoss queues the addition of two float64, stored in a buffer, to a cell.
func (d *Device) AddLoss(cells, two kernels.Buffer, microbatch int) error {
	o := d.begin("AddLoss", nil)
	o.line("loss_add", 1, 1, o.at(cells), o.at(two), uint64(microbatch), 0)
	return o.end()
}

// Kernel queues a product with the device's kernel, as a library would.
func (d *Device) Kernel(op driver.Multiply) error {
	o := d.begin("Kernel", nil)
	library := d.library
	d.library = nil
	o.matmul(product{
		a: uint64(op.A), b: uint64(op.B), c: uint64(op.C), m: op.M, n: op.N, k: op.K,
		transA: op.TransA, transB: op.TransB, accumulate: op.Accumulate,
	})
	d.library = library
	return o.end()
}

// Driver replaces the driver by another one, and returns the previous one.
func (d *Device) Driver(with driver.Driver) driver.Driver {
	was := d.driver
	d.driver = with
	return was
}
