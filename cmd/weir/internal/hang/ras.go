package hang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/schedule/units"
)

// RAS is the output of ncclras -f json (rasDumpCommsToJSON in src/ras/client_support.cc of NCCL 2.30.7): the
// communicators of a job, and how many collectives each of their ranks has started. The output does not count sends
// and receives, and does not say whether a collective has ended.
type RAS struct {
	NCCL          string         `json:"nccl_version"`
	CUDARuntime   int64          `json:"cuda_runtime_version"`
	CUDADriver    int64          `json:"cuda_driver_version"`
	Time          string         `json:"timestamp"`
	Count         int            `json:"communicators_count"`
	Communicators []Communicator `json:"communicators"`
	Collection    struct {
		Seconds  float64 `json:"collection_time_sec"`
		Timeouts int     `json:"timeouts_count"`
	} `json:"ras"`
}

// Communicator is a communicator of NCCL.
type Communicator struct {
	Hash      string    `json:"hash"`
	Secondary string    `json:"secondary_hash"`
	Size      int       `json:"size"`
	Answered  int       `json:"ranks_count"`
	Silent    int       `json:"missing_ranks_count"`
	Ranks     []RASRank `json:"ranks"`
	Missing   []RASRank `json:"missing_ranks"`
}

// RASRank is a rank of a communicator.
type RASRank struct {
	Rank   int    `json:"rank"`
	Host   string `json:"host"`
	PID    int    `json:"pid"`
	CUDA   int    `json:"cuda_dev"`
	NVML   int    `json:"nvml_dev"`
	Status struct {
		Init         int  `json:"init_state"`
		Async        int  `json:"async_error"`
		Finalized    bool `json:"finalize_called"`
		Destroyed    bool `json:"destroy_flag"`
		Aborted      bool `json:"abort_flag"`
		Unresponsive bool `json:"unresponsive"`
		Dead         bool `json:"considered_dead"`
	} `json:"status"`
	Started map[string]int64 `json:"collective_counts"`
}

// IsRAS reports whether a text begins as the output of ncclras -f json does.
func IsRAS(text []byte) bool {
	return strings.HasPrefix(strings.Join(strings.Fields(string(text[:min(len(text), 64)])), ""), `{"nccl_version":`)
}

// ReadRAS reads the output of ncclras -f json.
func ReadRAS(text []byte) (*RAS, *jsonfile.Error) {
	r := &RAS{}
	fault := jsonfile.Unmarshal(text, "output of ncclras", 1<<22, r)
	switch {
	case fault != nil:
	case len(r.Communicators) != r.Count:
		fault = &jsonfile.Error{Text: fmt.Sprintf("found %s, expected communicators_count %d of them: the output is not complete", units.Number(len(r.Communicators), "communicator"), r.Count)}
	case r.Count == 0:
		fault = &jsonfile.Error{Text: "found no communicator, so it says nothing of the job: query the host of one of its processes"}
	}
	return r, fault
}

// process names the process of a rank.
func (r *RASRank) process() string {
	return fmt.Sprintf("process %d on %s, GPU %d", r.PID, r.Host, r.NVML)
}

// RASReport holds the findings in the output of ncclras.
type RASReport struct {
	NCCL          string   `json:"nccl_version"`
	Time          string   `json:"timestamp"`
	Communicators int      `json:"communicators"`
	Silent        []string `json:"silent,omitempty"`  // processes that do not answer
	Errors        []string `json:"errors,omitempty"`  // ranks with an error
	Behind        []string `json:"behind,omitempty"`  // differing numbers of collectives, by communicator
	Awaited       []string `json:"awaited,omitempty"` // processes that are behind in one communicator and ahead in none
	Left          []string `json:"left,omitempty"`    // ranks that answer, but are not members of their communicator now
	Timeouts      int      `json:"timeouts,omitempty"`
}

// Report interprets the output. It names the processes that do not answer, report an error, have left their
// communicator, or have started fewer collectives than others.
func (r *RAS) Report() *RASReport {
	out := &RASReport{NCCL: r.NCCL, Time: r.Time, Communicators: len(r.Communicators), Timeouts: r.Collection.Timeouts}
	behind, ahead := map[string]bool{}, map[string]bool{}
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
	for i := range r.Communicators {
		c := &r.Communicators[i]
		of := fmt.Sprintf("of the communicator %s of %s", c.Hash, units.Number(c.Size, "rank"))
		for k := range c.Missing {
			switch one := &c.Missing[k]; {
			case one.Status.Dead:
				add(&out.Silent, one.process()+", is considered dead")
			case one.Status.Unresponsive:
				add(&out.Silent, one.process()+", does not answer")
			default:
				add(&out.Left, fmt.Sprintf("rank %d %s, %s", one.Rank, of, one.process()))
			}
		}
		byCount := map[string]map[int64][]int{} // by collective and number: the ranks
		for k := range c.Ranks {
			one := &c.Ranks[k]
			const success, inProgress = 0, 7 // ncclSuccess and ncclInProgress
			if s := one.Status; s.Init != success && s.Init != inProgress || s.Async != success && s.Async != inProgress || s.Aborted {
				add(&out.Errors, fmt.Sprintf("rank %d %s, %s: init_state %d, async_error %d, aborted %t", one.Rank, of, one.process(), s.Init, s.Async, s.Aborted))
			}
			for name, n := range one.Started {
				if byCount[name] == nil {
					byCount[name] = map[int64][]int{}
				}
				byCount[name][n] = append(byCount[name][n], k)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(byCount)) {
			counts := slices.Sorted(maps.Keys(byCount[name]))
			if len(counts) < 2 {
				continue
			}
			var parts []string
			for _, n := range counts {
				var ranks []int
				for _, k := range byCount[name][n] {
					ranks = append(ranks, c.Ranks[k].Rank)
					if process := c.Ranks[k].process(); n == counts[len(counts)-1] {
						ahead[process] = true
					} else {
						behind[process] = true
					}
				}
				slices.Sort(ranks)
				parts = append(parts, fmt.Sprintf("%s started %s", units.Ranks(ranks), units.Count(n)))
			}
			add(&out.Behind, fmt.Sprintf("%s %s: %s", name, of, strings.Join(parts, ", ")))
		}
	}
	for _, process := range slices.Sorted(maps.Keys(behind)) {
		if !ahead[process] {
			out.Awaited = append(out.Awaited, process)
		}
	}
	return out
}

// Found reports whether a process does not answer, a rank has an error, or numbers of collectives differ.
func (r *RASReport) Found() bool { return len(r.Silent)+len(r.Errors)+len(r.Behind) > 0 }

// Text returns the report for people.
func (r *RASReport) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "NCCL %s, %s, %s\n", r.NCCL, r.Time, units.Number(r.Communicators, "communicator"))
	for _, part := range []struct {
		head string
		list []string
	}{
		{"no answer from", r.Silent}, {"error", r.Errors},
		{"behind in all that differs, so others may wait for it", r.Awaited}, {"different numbers of collectives", r.Behind}, {"answers, but is not a member now", r.Left},
	} {
		for _, text := range part.list {
			fmt.Fprintf(&b, "%s: %s\n", part.head, text)
		}
	}
	switch {
	case len(r.Behind) > 0 && len(r.Awaited) == 0:
		b.WriteString("Every process that is behind in one communicator is ahead in another, so the numbers do not say which one the others wait for.\n")
	case !r.Found():
		b.WriteString("All processes answer and have started equally many collectives. NCCL's RAS counts no sends and receives, so a rank that waits for a transfer is not seen: give dumps of the flight recorder.\n")
	}
	if len(r.Behind) > 0 {
		b.WriteString("Numbers that differ are a hang only if they are the same in a second query.\n")
	}
	if r.Timeouts > 0 {
		fmt.Fprintf(&b, "%s while the data were gathered, so some are incomplete.\n", units.Number(r.Timeouts, "timeout"))
	}
	return b.String()
}
