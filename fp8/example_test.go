package fp8_test

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/fp8"
)

// A step measures each tensor over its microbatches, in any order, and rolls the history once.
func Example() {
	state, err := fp8.NewState(fp8.DelayedScaling{Format: fp8.Hybrid}, []fp8.Slot{{Name: "block0.qkv.input", Role: fp8.Input}})
	if err != nil {
		panic(err)
	}
	var met fp8.Tally
	for _, microbatch := range []float32{1.5, 3.5, 0.25} { // the greatest magnitude of each
		met.Merge(fp8.Tally{Amax: math.Float32bits(microbatch)})
	}
	if _, err := state.End([]fp8.Tally{met}); err != nil {
		panic(err)
	}
	scale := state.Scales()[0]
	code := fp8.E4M3.Encode(0.3 * scale)
	fmt.Printf("scale %g, 0.3 is stored as %#x and read as %.3f\n", scale, code, fp8.E4M3.Decode(code)/scale)
	// Output: scale 128, 0.3 is stored as 0x62 and read as 0.312
}
