package job_test

import (
	"context"
	"flag"
	"fmt"

	"github.com/weir-ml/weir/trainer/job"
)

// A process that was started alone has all ranks.
func ExampleFlags() {
	set := flag.NewFlagSet("train", flag.ContinueOnError)
	steps := set.Int("steps", 10, "optimizer steps") // one of the trainer's own flags
	opts := job.Flags(set)
	if err := opts.Parse([]string{"-ranks", "4", "-plan", "zb-v", "-steps", "20"}); err != nil {
		fmt.Println(err)
		return
	}
	const parts = 8 // of the model: further stages are identities
	if err := opts.Validate(parts); err != nil {
		fmt.Println(err)
		return
	}
	noLauncher := func(string) string { return "" }
	world, err := opts.Meet(context.Background(), noLauncher, func(line string) { fmt.Println(line) })
	fmt.Println(*steps, "steps,", opts.Describe())
	fmt.Println(world.Leads(), world.Has(3), err)
	// Output:
	// 20 steps, 8 stages on 4 ranks, zb-v
	// true true <nil>
}
