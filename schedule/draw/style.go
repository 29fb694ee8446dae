package draw

import (
	"fmt"

	"github.com/weir-ml/weir/internal/palette"
	"github.com/weir-ml/weir/schedule"
)

// style returns the picture's style sheet. It follows the reader's light or dark mode.
func style() string {
	colors := `
text{fill:var(--soft)}.page{fill:var(--card)}.title,.rank{fill:var(--ink)}.lane{fill:var(--lane)}
.grid,.pair{stroke:var(--ink)}.axis{stroke:var(--axis)}.area,.peak{fill:var(--soft)}.line{stroke:var(--soft)}
.front{stroke:var(--bad)}.at{fill:var(--bad);stroke:var(--card)}
`
	for _, k := range kinds {
		color, _ := palette.Kind(k.kind)
		colors += fmt.Sprintf(".%v{fill:var(--c%d)}", k.kind, color)
	}
	return shapes + palette.Sheet(colors+"\n") + palette.TextRules
}

// shapes are the rules without colors.
const shapes = `
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.title{font-size:19px;font-weight:600}
.rank{font-weight:600}
.small{font-size:11px}
.grid{stroke-opacity:.09;stroke-width:1}
.axis{stroke-width:1}
.n text{font-size:11px;text-anchor:middle;font-variant-numeric:tabular-nums}
.n .h{font-size:9.5px}
.pair{fill:none;stroke-opacity:.55;stroke-width:1.2}
.area{fill-opacity:.18}
.line{fill:none;stroke-width:1.3}
.front{fill:none;stroke-width:2;stroke-linejoin:round}
.at{stroke-width:1.5}
`

// kinds are the kinds that a picture shows, and their texts in the legend.
var kinds = [...]struct {
	kind schedule.Kind
	word string
}{
	{schedule.F, "F forward"},
	{schedule.B, "B backward"},
	{schedule.I, "I input gradient"},
	{schedule.W, "W weight gradient"},
	{schedule.Quantize, "Q weights quantized"},
	{schedule.Offload, "copy to far memory"},
	{schedule.Reload, "copy back"},
	{schedule.ReduceGrad, "gradients reduced"},
	{schedule.Unshard, "weights gathered"},
}

// minStrength is the strength of the color of a rank's last stage. The first stage has strength 1.
const minStrength = 0.45

// strength returns the strength of the color of the i-th of n stages.
func strength(i, n int) float64 {
	if n < 2 {
		return 1
	}
	return 1 - (1-minStrength)*float64(i)/float64(n-1)
}
