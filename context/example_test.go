package batchctx_test

import (
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
)

// A stage that keeps what it saved is named at the end of the microbatch. The
// runner makes these calls; a stage sees only the view.
func Example() {
	arena, _ := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	defer arena.Close()
	c, _ := frames.New(frames.Config[memory.Handle]{
		Space:  arena,
		Stages: []*frames.Layout[memory.Handle]{{Name: "block", Slots: 1}},
	})
	c.Begin(0, frames.Train, frames.Extent{Windows: []int{1}})

	_ = c.Open(0, 0)
	var mb *batchctx.Microbatch[memory.Handle] = c.Call(0, 0, frames.InForward)
	h, _ := arena.Alloc(memory.Saved, 1024)
	_ = mb.Save(0, batchctx.ByBackward, mb.Retain(h)) // one reference too many
	c.End()

	mb = c.Call(0, 0, frames.InBackward)
	_, _ = mb.Take(0)
	_, err := mb.Take(0)
	fmt.Println(err)
	c.End()
	_ = c.DropSaved(0, 0, frames.InBackward, true)
	fmt.Println(c.Audit(frames.Counts{}))
	// Output:
	// batchctx: stage 0 (block) microbatch 0: slot 0: batchctx: the saved state was taken already
	// batchctx: leak: rank 0 stage 0 (block) microbatch 0 B: 1024 bytes of class saved: what it saved ended with this action and somebody has a reference: this stage, or whoever gave it the tensor
}
