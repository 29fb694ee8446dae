package batchctx_test

import (
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
)

// A stage that keeps what it saved is named at the end of the microbatch. The
// runner makes these calls; a stage sees only the view.
func Example() {
	arena, _ := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	defer arena.Close()
	c, _ := batchctx.New(batchctx.Config[memory.Handle]{
		Space:  arena,
		Stages: []*batchctx.Layout[memory.Handle]{{Name: "block", Slots: 1}},
	})
	c.Begin(0, batchctx.Train, batchctx.Extent{Windows: []int{1}})

	_ = c.Open(0, 0)
	mb := c.Call(0, 0, batchctx.InForward)
	h, _ := arena.Alloc(memory.Saved, 1024)
	_ = mb.Save(0, batchctx.ByBackward, mb.Retain(h)) // one reference too many
	c.End()

	mb = c.Call(0, 0, batchctx.InBackward)
	_, _ = mb.Take(0)
	_, err := mb.Take(0)
	fmt.Println(err)
	c.End()
	_ = c.DropSaved(0, 0, batchctx.InBackward, true)
	fmt.Println(c.Audit(batchctx.Counts{}))
	// Output:
	// batchctx: stage 0 (block) microbatch 0: slot 0: batchctx: the saved state was taken already
	// batchctx: leak: rank 0 stage 0 (block) microbatch 0 B: 1024 bytes of class saved: what it saved ended with this action and somebody has a reference: this stage, or whoever gave it the tensor
}
