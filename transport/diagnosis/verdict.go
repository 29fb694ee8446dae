package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule/units"
)

// maxReasons is the maximum number of reasons that Verdict.Text gives.
const maxReasons = 4

// Reason says why ranks hold up a job.
type Reason struct {
	Ranks   []int  `json:"rank_list"`
	Circle  bool   `json:"circle,omitempty"` // whether the ranks wait for each other
	Text    string `json:"text"`
	Certain bool   `json:"certain"`
}

// Verdict says which ranks hold up a job, and why.
type Verdict struct {
	Blamed  []int    `json:"blamed"`  // in ascending order
	Certain bool     `json:"certain"` // whether there are Reasons and all of them are proven
	Reasons []Reason `json:"reasons"` // one for each rank or cycle of ranks
	Behind  []int    `json:"behind"`  // ranks that wait for the blamed ranks, directly or through others
}

// Judge returns the verdict for the reasons found in a graph of waits.
func Judge(g Graph, reasons []Reason) Verdict {
	v := Verdict{Blamed: []int{}, Certain: len(reasons) > 0, Reasons: reasons}
	for _, reason := range reasons {
		v.Blamed = append(v.Blamed, reason.Ranks...)
		v.Certain = v.Certain && reason.Certain
	}
	slices.Sort(v.Blamed)
	v.Blamed = slices.Compact(v.Blamed)
	for _, rank := range slices.Sorted(slices.Values(slices.Concat(g.Layers(v.Blamed)...))) {
		if !slices.Contains(v.Blamed, rank) {
			v.Behind = append(v.Behind, rank)
		}
	}
	return v
}

// Text says in two lines which ranks are to blame, and why. one and several are predicates, such as "stopped",
// for one rank and for several ranks that wait for none. place returns the progress of a rank, or "". There
// must be a blamed rank.
func (v Verdict) Text(one, several string, place func(rank int) string) string {
	var stopped []int
	var who, why []string
	for _, reason := range v.Reasons {
		ranks := units.Ranks(reason.Ranks)
		switch {
		case !reason.Circle:
			stopped = append(stopped, reason.Ranks...)
		case len(reason.Ranks) > 1:
			who = append(who, ranks+" wait for each other")
		default:
			who = append(who, ranks+" does not do what it should")
		}
		if len(why) == maxReasons {
			continue
		}
		if len(reason.Ranks) == 1 {
			if at := place(reason.Ranks[0]); at != "" {
				ranks += " (" + at + ")"
			}
		}
		if v.Certain != reason.Certain { // some reasons are certain, and some are not
			reason.Text += " (certain)"
		}
		why = append(why, ranks+" "+reason.Text)
	}
	if more := len(v.Reasons) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	slices.Sort(stopped)
	if len(stopped) > 0 {
		who = slices.Insert(who, 0, units.Ranks(stopped)+" "+plural(stopped, one, several))
	}
	blamed := plural(v.Blamed, "it", "them")
	switch len(v.Behind) {
	case 0:
	case 1:
		who = append(who, "1 other waits for "+blamed)
	default:
		who = append(who, fmt.Sprintf("%d others wait for %s, directly or through others", len(v.Behind), blamed))
	}
	certainty := " (likely)"
	if v.Certain {
		certainty = " (certain)"
	}
	return strings.Join(who, "; ") + certainty + "\n" + strings.Join(why, "; ")
}

// plural returns one for a single rank, and several otherwise.
func plural(ranks []int, one, several string) string {
	if len(ranks) == 1 {
		return one
	}
	return several
}
