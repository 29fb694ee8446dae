package lower

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Clocked returns how many computations of a plan the clock looks at to place its
// transfers, for links without limit.
func Clocked(plan *schedule.Plan) int64 {
	o := passes.NewOutline(withoutDrops(plan))
	v := newLowering(&o, schedule.Unlimited)
	v.Run(v)
	return v.Work()
}
