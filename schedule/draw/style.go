package draw

import "github.com/weir-ml/weir/schedule"

// style is the picture's style sheet. It follows the reader's choice of dark mode.
const style = `
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;fill:#586066}
.page{fill:#fff}
.title{font-size:19px;font-weight:600;fill:#14181b}
.rank{font-weight:600;fill:#14181b}
.small{font-size:11px}
.lane{fill:#eef0ef}
.grid{stroke:#14181b;stroke-opacity:.09;stroke-width:1}
.axis{stroke:#aab1b4;stroke-width:1}
.F{fill:#2a78d6}.B{fill:#e0632c}.I{fill:#149a8b}.W{fill:#f2b632}
.n text{font-size:11px;fill:#fff;text-anchor:middle;font-variant-numeric:tabular-nums}
.n .h{font-size:9.5px}
.n .d{fill:#14181b}
.pair{fill:none;stroke:#14181b;stroke-opacity:.55;stroke-width:1.2}
.area{fill:#5b6670;fill-opacity:.16}
.line{fill:none;stroke:#5b6670;stroke-width:1.3}
.peak{fill:#5b6670}
@media (prefers-color-scheme:dark){
text{fill:#a3acb1}
.page{fill:#14171a}
.title,.rank{fill:#eceff0}
.lane{fill:#22272b}
.grid{stroke:#fff;stroke-opacity:.09}
.axis{stroke:#5b656b}
.F{fill:#3d86dd}.B{fill:#d9602d}.I{fill:#1b9e90}.W{fill:#d99a1c}
.n .d{fill:#eceff0}
.n .d.k{fill:#14181b}
.pair{stroke:#fff;stroke-opacity:.6}
.area{fill:#a3acb1;fill-opacity:.2}
.line{stroke:#a3acb1}
.peak{fill:#a3acb1}
}
`

// kinds are the kinds that a picture shows. Word is the kind's text in the legend. Colour is "" if the
// style sheet has a rule for the kind.
var kinds = [...]struct {
	kind         schedule.Kind
	word, colour string
}{
	{schedule.F, "F forward", ""},
	{schedule.B, "B backward", ""},
	{schedule.I, "I input gradient", ""},
	{schedule.W, "W weight gradient", ""},
	{schedule.Quantize, "Q weights quantized", "#8a63c9"},
	{schedule.Offload, "copy to far memory", "#6b7f8c"},
	{schedule.Reload, "copy back", "#4f9a5b"},
	{schedule.ReduceGrad, "gradients reduced", "#b0487a"},
	{schedule.Unshard, "weights gathered", "#8a6d3b"},
}

// fill returns the attribute for a kind's colour, or "" if the style sheet has a rule for the kind.
func fill(kind schedule.Kind) string {
	for _, k := range kinds {
		if k.kind == kind && k.colour != "" {
			return ` fill="` + k.colour + `"`
		}
	}
	return ""
}

// minStrength is the strength of the colour of a rank's last stage. The first stage has strength 1.
const minStrength = 0.45

// strength returns the strength of the colour of the i-th of n stages.
func strength(i, n int) float64 {
	if n < 2 {
		return 1
	}
	return 1 - (1-minStrength)*float64(i)/float64(n-1)
}
