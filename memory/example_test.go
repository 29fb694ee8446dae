package memory_test

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory"
)

// Two books reveal a stage that keeps a buffer which it should have released.
func ExampleArena() {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer arena.Close()

	// A stage allocates a buffer and passes it to the step, but keeps a reference.
	saved, err := arena.Alloc(memory.Saved, 240<<10)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = arena.Retain(saved)
	held, _ := arena.Hold(saved)
	fmt.Println("the step holds", held, "of", arena.Live())

	// The step releases it.
	unheld, _ := arena.Unhold(saved)
	freed, _ := arena.Release(saved)
	fmt.Println("the step holds", held-unheld, "of", arena.Live(), "- freed", freed)
	for info := range arena.All() {
		fmt.Println("left:", info.Class, info.Bytes, "bytes,", info.Plain, "plain reference")
	}

	// After the last reference the handle is stale.
	_, _ = arena.Release(saved)
	_, err = arena.Data(saved)
	fmt.Println(errors.Is(err, memory.ErrStale), arena.Live())
	// Output:
	// the step holds 245760 of 245760
	// the step holds 0 of 245760 - freed 0
	// left: saved 245760 bytes, 1 plain reference
	// true 0
}

// An embedder's own handles, to memory that belongs to the garbage collector.
func ExampleGCSpace() {
	space := memory.NewGCSpace(nil, func(t *[]float32) int64 { return int64(4 * len(*t)) })
	output := make([]float32, 1000)

	held, _ := space.Hold(&output) // no call is needed before: this is the creator's reference
	fmt.Println("held:", held, "known:", space.Len())
	unheld, _ := space.Unhold(&output)
	fmt.Println("unheld:", unheld, "known:", space.Len())
	// Output:
	// held: 4000 known: 1
	// unheld: 4000 known: 0
}

// A layout gives the offsets of the buffers of a step. Other allocations fail.
func ExampleArena_SetLayout() {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer arena.Close()
	layout := &memory.Layout{
		Height: 4096,
		Allocations: []memory.Allocation{ // the second reuses the offset of the first
			{Offset: 0, Bytes: 4096, Class: memory.Saved},
			{Offset: 0, Bytes: 1024, Class: memory.ActGrad},
		},
		Places: []int32{0, 1, 2}, // a forward and a backward
		Levels: []memory.Level{{Live: 4096, Peak: 4096}, {Live: 1024, Peak: 1024}},
	}
	if err := arena.SetLayout(layout); err != nil {
		fmt.Println(err)
		return
	}
	arena.SetPlace(0)
	saved, _ := arena.Alloc(memory.Saved, 4096)
	arena.SetPlace(1)
	_, err = arena.Alloc(memory.ActGrad, 1024)
	fmt.Println(err)
	_, _ = arena.Release(saved)
	grad, err := arena.Alloc(memory.ActGrad, 1024)
	fmt.Println(arena.Bytes(grad), err)
	_, err = arena.Alloc(memory.Workspace, 512)
	fmt.Println(err)
	// Output:
	// memory: the place of the buffer is not free: 1024 bytes (actgrad) requested as allocation 0 of place 1; its offset 0 is taken: 4096 bytes (saved), allocation 0 since the arena was made, were not released
	// 1024 <nil>
	// memory: the allocation is not in the plan: 512 bytes (workspace) requested as allocation 1 of place 1; nothing more is planned there: make an allocation that depends on values in every microbatch, with Microbatch.AtMost for its size, which may be 0; otherwise the profile is out of date, so record the stage again
}

// Between steps the pages of gradients are returned to the system, and their addresses stay.
func ExampleArena_ReleasePages() {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 16 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer arena.Close()
	_, _ = arena.AllocIn(memory.Gradients, 1<<20)
	gradients := func() {
		s := arena.Scope(memory.Gradients)
		fmt.Println(s.Live, "live,", s.Reserved, "reserved,", s.Released, "released")
	}
	gradients()
	fmt.Println(arena.ReleasePages(nil, memory.StepScope, memory.Gradients))
	gradients()
	fmt.Println(arena.RestorePages(nil))
	gradients()
	// Output:
	// 1048576 live, 1048576 reserved, 0 released
	// <nil>
	// 0 live, 0 reserved, 1048576 released
	// <nil>
	// 1048576 live, 1048576 reserved, 0 released
}
