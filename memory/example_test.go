package memory_test

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/memory"
)

// Two books tell of a stage that keeps a buffer which it was to give up.
func ExampleArena() {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer arena.Close()

	// A stage makes a buffer and hands it to the step, but keeps a reference.
	saved, err := arena.Alloc(memory.Saved, 240<<10)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = arena.Retain(saved)
	held, _ := arena.Hold(saved)
	fmt.Println("the step holds", held, "of", arena.Live())

	// The step lets go.
	yielded, _ := arena.Yield(saved)
	freed, _ := arena.Release(saved)
	fmt.Println("the step holds", held-yielded, "of", arena.Live(), "- freed", freed)
	for info := range arena.All() {
		fmt.Println("left:", info.Class, info.Bytes, "bytes,", info.Plain, "plain reference")
	}

	// After the last reference the handle is worth nothing.
	_, _ = arena.Release(saved)
	_, err = arena.Data(saved)
	fmt.Println(errors.Is(err, memory.ErrStale), arena.Live())
	// Output:
	// the step holds 245760 of 245760
	// the step holds 0 of 245760 - freed 0
	// left: saved 245760 bytes, 1 plain reference
	// true 0
}

// Handles of an embedder's own, in memory that the garbage collector owns.
func ExampleCollected() {
	space := memory.NewCollected(nil, func(t *[]float32) int64 { return int64(4 * len(*t)) })
	output := make([]float32, 1000)

	held, _ := space.Hold(&output) // nothing was called before: it is the maker's reference
	fmt.Println("held:", held, "known:", space.Len())
	yielded, _ := space.Yield(&output)
	fmt.Println("yielded:", yielded, "known:", space.Len())
	// Output:
	// held: 4000 known: 1
	// yielded: 4000 known: 0
}
