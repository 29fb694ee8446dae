package timing

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// Clock is the clock of a host.
type Clock struct {
	Host  string `json:"host"`
	Ranks []int  `json:"rank_list"` // ranks of the pipeline on the host
	// Offset was added to the host's times. Its error is at most half of Width.
	Offset int64 `json:"offset"`
	Width  int64 `json:"width"`
	// Known is false if no messages bound the offset.
	Known bool `json:"known"`
}

const maxHosts = 1 << 12

// far stands for the distance between clocks if no message bounds it.
const far = math.MaxInt64 / 4

// align converts the times of all ranks to one clock. Ranks of one host share a clock. A receive
// ends after its send has begun, which bounds the difference between the clocks of two hosts. The
// shortest paths over these bounds give the lower and upper bounds of each host's offset from the
// first host.
func (u *measurement) align(ranksPerHost int) error {
	host := make([]int, len(u.traces))
	byName := map[string]int{}
	for rank, t := range u.traces {
		name := t.Host
		if ranksPerHost > 0 {
			name = fmt.Sprintf("host %d", t.Rank/ranksPerHost)
		}
		h, known := byName[name]
		if !known {
			h = len(u.hosts)
			byName[name] = h
			u.hosts = append(u.hosts, Clock{Host: name, Known: h == 0})
		}
		host[rank] = h
		u.hosts[h].Ranks = append(u.hosts[h].Ranks, rank)
	}
	if len(u.hosts) > maxHosts {
		return diagnostic.Errorf(ErrRun, "the ranks of the pipeline are on %d hosts, but the limit is %d: give --ranks-per-host", len(u.hosts), maxHosts)
	}
	if err := u.checkHosts(host); err != nil || len(u.hosts) == 1 {
		return err
	}
	most, least := u.distances(host)
	for h := range u.hosts {
		c := &u.hosts[h]
		if h == 0 || most[h] >= far || least[h] >= far {
			continue
		}
		// The offset is between -least and most.
		c.Known, c.Width = true, most[h]+least[h]
		c.Offset = -least[h] + c.Width/2
		if c.Width < 0 {
			return diagnostic.Errorf(ErrRun, "messages between %q and %q give offsets of their clocks that are %d ns apart: a clock was set during the run, or the files are of different runs",
				u.hosts[0].Host, c.Host, -c.Width)
		}
	}
	for e := range u.events() {
		offset := u.hosts[host[e.rank]].Offset
		e.start, e.end = e.start+offset, e.end+offset
	}
	return nil
}

// checkHosts returns an error if an action ends before its input is computed on the same host, by more than the
// duration of the rank's step.
func (u *measurement) checkHosts(host []int) error {
	for _, s := range u.steps {
		for rank, events := range s {
			took := events[len(events)-1].end - events[0].start
			for _, e := range events {
				if e.input != nil && host[e.input.rank] == host[rank] && e.end < e.input.end-took {
					return diagnostic.Errorf(ErrRun, "%v in %s ends %.3f s before its input is computed in %s: the files are of different runs, or of hosts with different clocks; for the latter, give --ranks-per-host",
						e.action, u.traces[rank].File, float64(e.input.end-e.end)/1e9, u.traces[e.input.rank].File)
				}
			}
		}
	}
	return nil
}

// distances returns, for every host, the upper bounds of the time to add to its clock, and of the
// time to subtract from it, to get the clock of the first host.
func (u *measurement) distances(host []int) (most, least []int64) {
	took := map[stageKind][]int64{}
	for e := range u.events() {
		took[e.stageKind()] = append(took[e.stageKind()], e.end-e.start)
	}
	shortest := map[stageKind]int64{}
	for key, list := range took {
		shortest[key] = slices.Min(list)
	}
	bounds := map[[2]int]int64{} // upper bounds of the clock of the second host minus that of the first
	for e := range u.events() {
		if e.input == nil || host[e.rank] == host[e.input.rank] {
			continue
		}
		// The receive ends before the computation begins, and the computation takes at least its
		// shortest time.
		key, bound := [2]int{host[e.rank], host[e.input.rank]}, e.end-shortest[e.stageKind()]-e.input.end
		if old, known := bounds[key]; !known || bound < old {
			bounds[key] = bound
		}
	}
	most, least = make([]int64, len(u.hosts)), make([]int64, len(u.hosts))
	for h := 1; h < len(u.hosts); h++ {
		most[h], least[h] = far, far
	}
	keys := slices.SortedFunc(maps.Keys(bounds), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	for range u.hosts {
		for _, key := range keys { // A shortest path does not return to host 0.
			from, to := key[0], key[1]
			if to > 0 && most[from] < far {
				most[to] = min(most[to], most[from]+bounds[key])
			}
			if from > 0 && least[to] < far {
				least[from] = min(least[from], least[to]+bounds[key])
			}
		}
	}
	return most, least
}

// stageKind is a kind of computation on a stage.
type stageKind struct {
	stage int
	kind  schedule.Kind
}

func (e *event) stageKind() stageKind { return stageKind{e.action.Stage(), e.action.Kind()} }
