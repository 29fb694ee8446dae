package exact_test

import (
	"context"
	"fmt"
	"log"

	"github.com/weir-ml/weir/internal/placement/exact"
	"github.com/weir-ml/weir/memory/placement"
)

// Three buffers of 2 bytes of which any two are live together, one of them with a gap: at most
// 4 bytes are live at once, but no layout is lower than 6.
func Example() {
	problem := placement.Problem{Buffers: []placement.Buffer{
		{Lower: 0, Upper: 2, Size: 2},
		{Lower: 1, Upper: 3, Size: 2},
		{Lower: 0, Upper: 3, Size: 2, Gaps: []placement.Gap{{Lower: 1, Upper: 2}}},
	}}
	layout, err := exact.Solve(context.Background(), &problem, placement.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("height", layout.Height, "bound", layout.Bound, "optimal", layout.Optimal)
	fmt.Println("proof:", layout.Proof)
	// Output:
	// height 6 bound 4 optimal true
	// proof: all layouts were searched: none is lower
}
