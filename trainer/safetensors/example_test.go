package safetensors_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/weir-ml/weir/trainer/safetensors"
)

// Weights are written to a file that every reader of the format accepts, and are read by name.
func Example() {
	var file bytes.Buffer
	err := safetensors.Write(&file, map[string]string{"model": "line"},
		safetensors.Of("weight", []int{2, 2}, []float32{1, 2, 3, 4}),
		safetensors.Of("bias", []int{2}, []float32{5, 6}))
	if err != nil {
		log.Fatal(err)
	}
	weights, err := safetensors.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range weights.Tensors() {
		values := make([]float32, (t.End-t.Begin)/int64(t.DType.Size()))
		if err := safetensors.Read(weights, t.Name, values); err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Name, t.DType, t.Shape, values)
	}
	fmt.Println("whole:", weights.Verify() == nil)
	// Output:
	// bias F32 [2] [5 6]
	// weight F32 [2 2] [1 2 3 4]
	// whole: true
}
