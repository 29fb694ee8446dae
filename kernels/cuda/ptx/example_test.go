package ptx_test

import (
	"fmt"

	interpreter "github.com/weir-ml/weir/kernels/cuda/internal/ptx"
	"github.com/weir-ml/weir/kernels/cuda/ptx"
)

func Example() {
	text, err := ptx.Files.ReadFile("optimizer.ptx")
	if err != nil {
		fmt.Println(err)
		return
	}
	module, err := interpreter.Parse(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, k := range module.Kernels {
		fmt.Printf("%s: %d parameters in %d bytes, %d bytes of shared memory\n", k.Name, len(k.Params), k.ParamBytes, k.Shared)
	}
	// Output:
	// squares: 3 parameters in 24 bytes, 2048 bytes of shared memory
	// squares_sum: 2 parameters in 16 bytes, 0 bytes of shared memory
	// adamw: 15 parameters in 80 bytes, 0 bytes of shared memory
}
