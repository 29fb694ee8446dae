package cuda_test

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/memory"
)

func ExampleOpen() {
	driver := fakecuda.New(1, 1<<20, 4096) // with the tag cuda: libcuda.Open(0)
	dev, err := cuda.Open(driver, cuda.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	weights, _ := dev.Alloc(memory.Resident, kernels.Float32, 3)
	_ = dev.WriteFloat32(weights, []float32{1, 2, 3})
	got := make([]float32, 3)
	fmt.Println(dev.ReadFloat32(got, weights), got, dev.Live())
	// Output:
	// <nil> [1 2 3] 12
}
