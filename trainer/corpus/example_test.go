package corpus_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/weir-ml/weir/trainer/corpus"
)

// The windows of a step do not depend on the order of the calls.
func Example() {
	folder, err := os.MkdirTemp("", "corpus")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "text.txt")
	if err := os.WriteFile(path, []byte("Light itself is a heterogeneous mixture of differently refrangible rays."), 0o666); err != nil {
		log.Fatal(err)
	}
	text, err := corpus.Read(context.Background(), path, 1<<20, nil)
	if err != nil {
		log.Fatal(err)
	}
	windows := corpus.Drawn{Text: text.Bytes, Longest: 16, Seed: 1, Step: 5}
	for _, i := range []int{2, 0, 1, 2} {
		begin, end := windows.Window(i)
		fmt.Printf("%d %q\n", i, text.Bytes[begin:end])
	}
	// Output:
	// 2 "t itself"
	// 0 " mixture of di"
	// 1 "ntly refran"
	// 2 "t itself"
}
