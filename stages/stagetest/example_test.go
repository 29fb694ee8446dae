package stagetest_test

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/stages/stagetest"
)

// The stage passes its input on but also keeps a reference to it. In a test, call Run instead of Check.
func Example() {
	wire := []stages.Port{{Name: "x"}}
	type mb = batchctx.Microbatch[memory.Handle]
	keeps := func() stages.Stage[memory.Handle] {
		var last memory.Handle
		return &stages.Func[memory.Handle]{
			Declares: stages.Spec{Name: "keeps", Inputs: wire, Outputs: wire},
			ForwardFunc: func(_ context.Context, mb mb, in, out []memory.Handle) error {
				last = mb.Retain(in[0]) // keeps a reference
				out[0] = mb.Retain(last)
				return nil
			},
			BackwardFunc: func(_ context.Context, mb mb, gradOut, gradIn []memory.Handle) error {
				if gradIn != nil {
					gradIn[0] = mb.Retain(gradOut[0])
				}
				return nil
			},
		}
	}

	faults := stagetest.Check(stagetest.Config[memory.Handle]{
		New: func() (stagetest.Subject[memory.Handle], error) {
			arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
			if err != nil {
				return stagetest.Subject[memory.Handle]{}, err
			}
			return stagetest.Subject[memory.Handle]{
				Stage: keeps(), Space: arena, Read: arena.Data, Close: arena.Close,
				Make: func(want stagetest.Want) (memory.Handle, error) { return arena.Alloc(want.Class, 1000) },
			}, nil
		},
	})
	for _, fault := range faults {
		fmt.Println(fault.Code)
	}
	// Output: keeps input
}

// For a stage over buffers of a device, only the sizes are needed.
func ExampleOnDevice() {
	faults := stagetest.Check(stagetest.Config[kernels.Buffer]{
		New: func() (stagetest.Subject[kernels.Buffer], error) {
			device, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
			if err != nil {
				return stagetest.Subject[kernels.Buffer]{}, err
			}
			return stagetest.OnDevice(device, gelu(device), func(want stagetest.Want) int { return 8 + want.Microbatch }), nil
		},
	})
	fmt.Println(len(faults), "faults")
	// Output: 0 faults
}
