package layout

import (
	"iter"

	"github.com/weir-ml/weir/memory"
)

// maxNamed is the largest number of owners that Owners names on a rank.
const maxNamed = 32

// Owners returns the owners at the peak of each rank, the largest first, for a log (memlog.Log.PeakOwner)
// that begins with this step. It combines a rank's smaller owners by class.
func (p *Memory) Owners(step int64) iter.Seq[memory.PeakOwner] {
	return func(yield func(memory.PeakOwner) bool) {
		for rank := range p.Ranks {
			owners := p.Ranks[rank].Peak.Owners
			var others [memory.NumClasses]memory.PeakOwner
			for i, o := range owners {
				if i >= maxNamed {
					others[o.Class].Bytes += o.Bytes
					others[o.Class].Buffers += o.Count
				} else if !yield(memory.PeakOwner{Step: step, Rank: rank, Name: o.Name, Class: o.Class, Bytes: o.Bytes, Buffers: o.Count, First: o.First, Last: o.Last}) {
					return
				}
			}
			for class, o := range others {
				if o.Buffers > 0 && !yield(memory.PeakOwner{Step: step, Rank: rank, Name: "(others)", Class: memory.Class(class), Bytes: o.Bytes, Buffers: o.Buffers, First: -1, Last: -1}) {
					return
				}
			}
		}
	}
}
