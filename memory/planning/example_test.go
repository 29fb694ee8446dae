package planning_test

import (
	"context"
	"fmt"
	"log"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/planning"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

// bump is a planner for one rank that places all allocations one after the other, without reuse. It
// learns the allocations from a step without a plan on a Null device: the step calls act before each
// action, and the device calls change for each change of its book.
type bump struct {
	layout memory.Layout
	live   int64
	refs   map[uint64]int // by serial number of a buffer of the step
}

func (b *bump) act(int, schedule.Action) {
	b.layout.Places = append(b.layout.Places, int32(len(b.layout.Allocations)))
	b.layout.Levels = append(b.layout.Levels, memory.Level{Live: b.live, Peak: b.live})
}

func (b *bump) change(c memory.Change) {
	l, n := &b.layout, b.refs[c.Serial]
	if len(l.Levels) == 0 { // with -tags invariants, the source is tried before the first action
		return
	}
	switch {
	case c.Op == memory.Allocated:
		b.refs[c.Serial], b.live = 1, b.live+c.Bytes
		l.Allocations = append(l.Allocations, memory.Allocation{Offset: l.Height, Bytes: c.Bytes, Class: c.Class})
		l.Height += (c.Bytes + 63) &^ 63
	case n > 0 && c.Op == memory.Retained:
		b.refs[c.Serial] = n + 1
	case n > 0:
		if b.refs[c.Serial] = n - 1; n == 1 {
			b.live -= c.Bytes
		}
	}
	level := &l.Levels[len(l.Levels)-1]
	level.Live, level.Peak = b.live, max(level.Peak, b.live)
}

// Plan returns the plan of the step that it has learned. Every action has a separate place.
func (b *bump) Plan(_ context.Context, step *planning.Step) (planning.Plan, error) {
	if step.Budget > 0 && b.layout.Height > step.Budget {
		return nil, fmt.Errorf("a step takes %d bytes", b.layout.Height)
	}
	if place := 0; b.layout.Segments == nil {
		b.act(0, 0) // the end of the step
		b.layout.Places = append(b.layout.Places, int32(len(b.layout.Allocations)))
		for _, s := range step.Plan.Programs[0] {
			b.layout.Segments = append(b.layout.Segments, memory.SegmentPlaces{First: place, Body: len(s.Body), Repeat: s.Repeat, Lead: s.Repeat})
			place += len(s.Body) * s.Repeat
		}
	}
	return b, nil
}

func (b *bump) OffloadSlots(*schedule.Placement, float64) []uint64 { return nil }
func (b *bump) Layouts(int) (near, far *memory.Layout)             { return &b.layout, nil }
func (b *bump) AppendParts(parts []int, _ int, _ uint64) []int     { return parts }
func (b *bump) Names(int, int) []string                            { return nil }

// config returns a stage on a device, and its source. The stage saves the part, and 12 bytes of its own.
func config(dev kernels.Compute) (runner.Config[kernels.Buffer], runner.Source[kernels.Buffer]) {
	type view = batchctx.Microbatch[kernels.Buffer]
	var d stages.Decl[kernels.Buffer]
	part, input, own, objective := d.Part("x"), d.Slot("x"), d.Slot("own"), d.Loss("loss")
	stage := d.Stage("only", func(_ context.Context, mb view, _, _ []kernels.Buffer) error {
		mb.Loss(objective, 1, 1)
		mb.Save(input, mb.Retain(mb.Part(part)))
		mb.Save(own, mb.Must(dev.Alloc(memory.Saved, kernels.Float32, 3)))
		return nil
	}, func(_ context.Context, mb view, _, _ []kernels.Buffer) error {
		mb.LossSeed(objective)
		mb.Take(input)
		mb.Take(own)
		return nil
	})
	source := runner.Indexed(func(_ context.Context, e batchctx.Entry[kernels.Buffer]) error {
		e.Put("x", e.Must(dev.Alloc(memory.Entry, kernels.Float32, 4)))
		return nil
	})
	return runner.Config[kernels.Buffer]{
		Stages: []stages.Stage[kernels.Buffer]{stage}, Spaces: runner.Spaces(dev), Schedule: "breadth-first",
	}, source
}

// A planner of fifty lines.
func Example() {
	ctx := context.Background()
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	null := kernels.NewNull(host)
	defer null.Close()
	step := func(cfg runner.Config[kernels.Buffer], source runner.Source[kernels.Buffer]) {
		r, err := runner.New(cfg)
		if err != nil {
			log.Fatal(err)
		}
		defer r.Close()
		result, err := r.Step(ctx, 20, source)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("planned:", result.Planned, "height:", result.Height, "peak:", result.Peak)
	}

	planner := &bump{refs: map[uint64]int{}}
	dry, shape := config(null)
	dry.Hooks.Action = planner.act
	null.Watch(planner.change)
	step(dry, shape)

	cfg, source := config(host)
	cfg.Memory.Profile = planner
	step(cfg, source)
	cfg.Memory.Budget = 2000
	step(cfg, source)
	// Output:
	// planned: false height: 0 peak: 560
	// planned: true height: 2560 peak: 560
	// runner: a plan for 20 microbatches: a step takes 2560 bytes
}
