package checkpoint_test

import (
	"fmt"
	"log"
	"os"

	"github.com/weir-ml/weir/trainer/checkpoint"
	"github.com/weir-ml/weir/trainer/safetensors"
)

// Two ranks write a shard each, one of them commits, and a reader reads a tensor.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const step = 800
	first, err := checkpoint.WriteShard(dir, step, 0, 2, checkpoint.Whole(safetensors.Of("embedding", []int{2, 2}, []float32{1, 2, 3, 4}))...)
	if err != nil {
		log.Fatal(err)
	}
	second, err := checkpoint.WriteShard(dir, step, 1, 2, checkpoint.Whole(safetensors.Of("head", []int{2}, []float32{5, 6}))...)
	if err != nil {
		log.Fatal(err)
	}
	state := checkpoint.State{Step: step, Seed: 1, Metadata: map[string]string{"learning rate": "0.01"}}
	if err := checkpoint.Commit(dir, state, first, second); err != nil {
		log.Fatal(err)
	}

	saved, err := checkpoint.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer saved.Close()
	head := make([]float32, 2)
	if err := checkpoint.Read(saved, "head", []int{2}, head); err != nil {
		log.Fatal(err)
	}
	fmt.Println("step", saved.Step, "at rate", saved.Metadata["learning rate"], "has", len(saved.Tensors()), "tensors; head", head)
	// Output:
	// step 800 at rate 0.01 has 2 tensors; head [5 6]
}

// A run writes a checkpoint every hundred steps, and resumes from the newest whole one.
func ExampleSaver() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	saver := checkpoint.Saver{Dir: dir, Steps: 100}
	weights := []float32{0}
	for step := int64(0); step < 250; step++ {
		if saver.Due(step) {
			if err := saver.Save(checkpoint.State{Step: step}, safetensors.Of("weights", []int{1}, weights)); err != nil {
				log.Fatal(err)
			}
		}
		weights[0]++
	}

	saved, _, err := checkpoint.Newest(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer saved.Close()
	if err := checkpoint.Read(saved, "weights", []int{1}, weights); err != nil {
		log.Fatal(err)
	}
	fmt.Println("resumes after step", saved.Step, "with", weights)
	// Output:
	// resumes after step 200 with [200]
}
