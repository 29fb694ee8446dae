package transformer

import (
	"context"
	"errors"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
)

// Values of Config.KeepLogits.
const (
	NoLogits  int64 = -1
	AllLogits int64 = math.MaxInt64
)

// Record calls record.Stages with the stages of m and returns the profile. m must be a model on the Null
// devices of dry.Spaces, which are the spaces of all ranks or of the ranks of one replica.
//
// If KeepLogits is 0, Record sets it: it plans a step of the given number of microbatches both
// with all logits kept and with none. It keeps all if the step then fits dry.Memory.Budget on
// every rank or, without a budget, if no rank then needs more than 6/5 of the memory that it
// needs without logits, including its resident buffers. If the step is too long to be planned, it
// keeps none. Record stores the choice in the profile and in m.KeepLogits. It is the same in
// every process that records the same ranks, whichever process runs the head.
func (m *Model) Record(ctx context.Context, dry runner.Config[kernels.Buffer], microbatches int, shapes ...record.Shape[kernels.Buffer]) (*layout.Profile, error) {
	if m.KeepLogits != 0 {
		return record.Stages(ctx, dry, shapes...)
	}
	m.KeepLogits = AllLogits
	all, most, err := planned(ctx, dry, microbatches, shapes)
	if err != nil {
		return nil, err
	}
	m.KeepLogits = NoLogits
	none, least, err := planned(ctx, dry, microbatches, shapes)
	if err != nil || most == nil || least == nil {
		return none, err
	}
	for rank, space := range dry.Spaces {
		resident := space.(kernels.Device).Live()
		with, without := most.Ranks[rank].Height, least.Ranks[rank].Height
		if budget := dry.Memory.Budget; budget > 0 && with > budget || budget == 0 && resident+with > (resident+without)*6/5 {
			return none, nil
		}
	}
	m.KeepLogits = AllLogits
	return all, nil
}

// planned records the stages of dry and plans a step with them, without a budget. The plan is
// nil if the step is too long to be planned.
func planned(ctx context.Context, dry runner.Config[kernels.Buffer], microbatches int, shapes []record.Shape[kernels.Buffer]) (*layout.Profile, *layout.Memory, error) {
	profile, err := record.Stages(ctx, dry, shapes...)
	if err != nil {
		return nil, nil, err
	}
	dry.Memory = runner.Memory{Profile: profile, Search: dry.Memory.Search}
	r, err := runner.NewDry(dry)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	plan, err := r.Prepare(ctx, microbatches, nil)
	if errors.Is(err, layout.ErrTooLong) {
		err = nil
	}
	made, _ := plan.(*layout.Memory)
	return profile, made, err
}
