package cuda_test

import (
	"fmt"

	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// absent is the driver of a machine without a GPU.
type absent struct{ driver.Driver }

func (absent) NewStream() (driver.Stream, error) {
	return 0, &driver.Error{Call: "NewStream", Code: 100, Text: "no CUDA-capable device is detected", Kind: driver.ErrNoDevice}
}

func (absent) Close() error { return nil }

func ExampleOpen() {
	_, err := cuda.Open(absent{}, cuda.Config{})
	fmt.Println(err)
	// Output:
	// cuda: open: no such CUDA device: NewStream: no CUDA-capable device is detected (CUDA error 100)
}
