package placement_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weir-ml/weir/memory/placement"
)

// Four buffers, of which at most 8 bytes are live at once: a layout of that height exists.
func Example() {
	problem := placement.Problem{Buffers: []placement.Buffer{
		{Lower: 0, Upper: 10, Size: 4},
		{Lower: 0, Upper: 5, Size: 3},
		{Lower: 5, Upper: 10, Size: 2},
		{Lower: 5, Upper: 10, Size: 2, Align: 2},
	}}
	layout, err := placement.Solve(context.Background(), &problem, placement.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("height", layout.Height, "bound", layout.Bound, "optimal", layout.Optimal)
	fmt.Println("offsets", layout.Offsets)
	fmt.Println("found:", layout.Method)
	fmt.Println("proof:", layout.Proof)

	layout.Offsets[3]--
	_, err = placement.Check(&problem, layout.Offsets)
	fmt.Println(err)
	// Output:
	// height 8 bound 8 optimal true
	// offsets [0 4 4 6]
	// found: larger first, first fit
	// proof: the height is the bound: the most bytes alive at once
	// placement: not a layout: buffer 3 is at 5, which is not a multiple of 2
}
