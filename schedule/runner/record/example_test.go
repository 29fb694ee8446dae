package record_test

import (
	"context"
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
	"github.com/weir-ml/weir/stages/transformer"
)

// The stages are recorded on Null devices. With the profile every step is laid out before it
// begins.
func ExampleStages() {
	host, err := kernels.NewHost(kernels.HostConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer host.Close()
	null := kernels.NewNull(host)
	defer null.Close()

	configure := func(dev kernels.Compute) (cfg runner.Config[kernels.Buffer], source runner.Source[kernels.Buffer], err error) {
		model, err := transformer.New(dev, transformer.Config{Vocabulary: 16, Width: 16, Layers: 2, Heads: 2, Context: 32, Seed: 1}, 4)
		if err != nil {
			return cfg, nil, err
		}
		cfg = runner.Config[kernels.Buffer]{
			Stages: model.Stages(), Spaces: runner.Spaces(dev), Gradients: dev,
			Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
		}
		return cfg, runner.Indexed(func(_ context.Context, e batchctx.Entry[kernels.Buffer]) error {
			ids := make([]int32, 32)
			transformer.Put(dev, e, ids, ids, make([]float32, 32))
			return nil
		}), nil
	}
	dry, shape, err := configure(null)
	if err != nil {
		fmt.Println(err)
		return
	}
	profile, err := record.Stages(context.Background(), dry,
		record.Shape[kernels.Buffer]{Name: "32 tokens", Source: shape})
	if err != nil {
		fmt.Println(err)
		return
	}

	cfg, source, err := configure(host)
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg.Memory.Profile = profile
	r, err := runner.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := r.Prepare(context.Background(), 1000, source)
	if err != nil {
		fmt.Println(err)
		return
	}
	rank := &plan.(*layout.Memory).Ranks[0]
	fmt.Println("gap:", rank.Gap())

	before := host.Live()
	result, err := r.Step(context.Background(), 1000, source)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("planned:", result.Planned)
	fmt.Println("peak as planned:", result.Peak-before == rank.Bound)
	// Output:
	// gap: 0
	// planned: true
	// peak as planned: true
}
