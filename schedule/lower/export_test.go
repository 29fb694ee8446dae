package lower

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Clocked returns the number of computations that the clock visits to place the transfers of a plan
// for unlimited links.
func Clocked(plan *schedule.Plan) int64 {
	o := passes.NewOutline(withoutDrops(plan))
	v := newLowering(&o, schedule.Unlimited)
	v.clock.Run(v)
	return v.sets.Work()
}
