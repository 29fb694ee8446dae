package schedule_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// receiveBuffers returns how many buffers for receives all ranks need together, where a rank has
// one pool of them, and where each stage has one in each direction. A buffer is in use
// from its receive to the last computation of its stage and microbatch.
func receiveBuffers(p *schedule.Plan) (pooled, apart int) {
	for rank := range p.Programs {
		last := map[cell]int{}
		for i, a := range lists(p)[rank] {
			if a.Kind().Compute() {
				last[cell{a.Stage(), a.Microbatch()}] = i
			}
		}
		type pool struct {
			stage int
			kind  schedule.Kind
		}
		now, most := map[pool]int{}, map[pool]int{}
		all, peak := 0, 0
		held := map[cell][]pool{}
		for i, a := range lists(p)[rank] {
			at := cell{a.Stage(), a.Microbatch()}
			if k := a.Kind(); k == schedule.RecvF || k == schedule.RecvB {
				in := pool{a.Stage(), k}
				held[at] = append(held[at], in)
				now[in]++
				all++
				most[in], peak = max(most[in], now[in]), max(peak, all)
			}
			if last[at] == i {
				for _, in := range held[at] {
					now[in]--
					all--
				}
			}
		}
		pooled += peak
		for _, n := range most {
			apart += n
		}
	}
	return pooled, apart
}

func TestReceiveBuffers(t *testing.T) {
	for _, s := range schedule.Schedules() {
		for _, c := range [][3]int{{8, 2, 64}, {4, 2, 8}, {4,2,16}} {
			place, err := s.Place(c[0], c[0]*c[1])
			if err != nil {
				continue
			}
			p, err := s.Rule(schedule.Params{Placement: place, Microbatches: c[2]})
			if err != nil {
				continue
			}
			line := fmt.Sprint("BUF ", s.Name, c)
			for _, cap := range []int{-1, 1, 0} {
				l, err := schedule.Comms(p, cap)
				require.NoError(t, err)
				a, b := receiveBuffers(l)
				line += fmt.Sprint(" cap ", cap, ": ", a, " ", b)
			}
			for _, d := range []bool{false, true} {
				l, err := schedule.LowerPyTorch(p, schedule.PyTorch{Defer: d})
				require.NoError(t, err)
				a, b := receiveBuffers(l)
				line += fmt.Sprint(" torch ", d, ": ", a, " ", b, " ", schedule.Check(l) == nil)
				for _, cap := range []int{0, 1} {
					_, err := carry(l, cap, ticks)
					line += fmt.Sprint(" at ", cap, " ", err == nil)
				}
			}
			fmt.Println(line)
		}
	}
}
