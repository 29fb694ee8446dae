package minimalloc_test

import (
	"context"
	"log"
	"os"
	"strings"

	"github.com/weir-ml/weir/internal/placement/minimalloc"
	"github.com/weir-ml/weir/memory/placement"
)

// An instance is read, laid out, and written with its offsets.
func Example() {
	in, err := minimalloc.Read(strings.NewReader(`id,lower,upper,size
weights,0,10,3
left,1,5,4
right,5,9,4
`))
	if err != nil {
		log.Fatal(err)
	}
	layout, err := placement.Solve(context.Background(), &in.Problem, placement.Options{})
	if err != nil {
		log.Fatal(err)
	}
	in.Offsets = layout.Offsets
	if err := minimalloc.Write(os.Stdout, in); err != nil {
		log.Fatal(err)
	}
	// Output:
	// id,lower,upper,size,offset
	// weights,0,10,3,4
	// left,1,5,4,0
	// right,5,9,4,0
}
