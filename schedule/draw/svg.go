package draw

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/palette"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/units"
)

// MaxBoxes is the largest number of computations in a picture.
const MaxBoxes = 20_000

// The dimensions of the picture, in its own units of about one pixel.
const (
	left       = 118.0 // left margin, with the names of the ranks
	right      = 96.0  // right margin, with the peaks
	top        = 98.0  // title, facts, legend
	bottom     = 46.0  // the axis
	lane       = 27.0  // height of a rank's row
	curveSize  = 30.0  // height of the curve of held memory
	gap        = 15.0  // between ranks
	curveGap   = 4.0   // between a row and its curve
	minBox     = 17.0  // preferred width of the shortest computation
	minPlot    = 760.0
	maxPlot    = 8000.0
	digit      = 6.6 // width of a digit in a box, and in a small box
	smallDigit = 5.7
	titleChar  = 10.5 // width of a character of the title
	titleLine  = 24.0 // height of a line of the title
	maxLines   = 4    // of the title
)

// SVG writes a picture. It has a row for each rank, and a box for each computation, labeled with the
// microbatch if there is room. The stages of a rank fade from first to last. The two actions of a joined
// pair are drawn one above the other. If the plan offloads, each rank has a second row, with the copies
// to far memory above the copies back. If replicas exchange anything, each rank has another row, with
// gradient reductions above weight gathers. Below these rows is the amount that the rank holds, in bytes,
// or in microbatches in flight if the events have no live bytes. All ranks share one scale. Colors
// follow the reader's light or dark mode. The picture has no scripts and no external fonts.
//
// For a step of more than MaxBoxes computations or MaxEvents actions, SVG returns an error that wraps
// ErrTooLong, and for an invalid step one that wraps ErrStep.
func (s *Step) SVG(w io.Writer) error {
	p, err := s.picture(MaxBoxes)
	if err != nil {
		return err
	}
	p.w = bufio.NewWriter(w)
	legend, width := p.legend()
	p.measure(width)
	p.open()
	p.printf("%s", legend)
	p.axis()
	for rank := range s.Events {
		p.rank(rank)
	}
	p.front()
	p.printf("</svg>\n")
	if err := p.w.Flush(); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}

// picture draws a step.
type picture struct {
	w      *bufio.Writer
	step   *Step
	clocks clocks
	boxes  [][]box // by rank: the computations that take time
	curves []curve
	bytes  bool    // the curves are in bytes
	most   float64 // the highest peak of all curves

	plot, height float64
	pitch        float64 // distance from one rank to the next
	rows         []int   // the first lanes of the rows of copies
	copies       float64 // height of a rank's rows of copies
}

// picture returns an empty picture of a step of at most this many computations.
func (s *Step) picture(most int64) (*picture, error) {
	computations, err := s.check()
	if err != nil {
		return nil, err
	}
	if computations > most {
		return nil, &TooLongError{computations, most, computations <= MaxPageBoxes}
	}
	p := &picture{step: s.inLargerUnit(), clocks: s.clocks(), boxes: make([][]box, len(s.Events)), rows: s.rows()}
	for rank := range p.boxes {
		for b := range s.boxes(rank) {
			if b.End > b.Start {
				p.boxes[rank] = append(p.boxes[rank], b)
			}
		}
	}
	p.copies = float64(len(p.rows)) * (curveGap + lane)
	if p.curves = make([]curve, len(s.Rows)); s.Rows == nil {
		p.curves, p.bytes = s.curves(p.clocks.begin)
	}
	for _, c := range p.curves {
		p.most = max(p.most, c.peak)
	}
	return p, nil
}

// inLargerUnit returns the step in a larger unit of time, up to seconds, as long as it takes 10,000 units or more.
func (s *Step) inLargerUnit() *Step {
	own, seconds := *s, []string{"ns", "us", "ms", "s"}
	for i := slices.Index(seconds, s.Unit); i >= 0 && i < len(seconds)-1 && s.clocks().length()/max(own.Scale, 1) >= 10_000; i++ {
		own.Unit, own.Scale = seconds[i+1], 1000*max(own.Scale, 1)
	}
	return &own
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

// measure sets the width and the height of the plot. The shortest computation should have room for its
// number, unless it is much shorter than others. The legend, whose width is given, must fit too.
func (p *picture) measure(legend float64) {
	shortest, most := p.clocks.length(), 0
	for _, boxes := range p.boxes {
		most = max(most, len(boxes))
		for _, b := range boxes {
			shortest = min(shortest, b.End-b.Start)
		}
	}
	p.plot = minPlot
	if shortest > 0 {
		p.plot = min(max(minBox*float64(p.clocks.length())/float64(shortest), minPlot), maxPlot)
		p.plot = max(min(p.plot, 3*minBox*float64(most)), minPlot)
	}
	p.plot = max(p.plot, math.Ceil(legend)-left-right)
	p.pitch = lane + gap + p.copies
	if p.most > 0 {
		p.pitch += curveGap + curveSize
	}
	p.height = top + float64(len(p.curves))*p.pitch - gap + bottom
}

// x turns a time into a coordinate.
func (p *picture) x(time int64) float64 {
	return left + p.plot*float64(time-p.clocks.begin)/float64(max(p.clocks.length(), 1))
}

// y returns the top of a rank's row.
func (p *picture) y(rank int) float64 { return top + float64(rank)*p.pitch }

// at returns a coordinate as text.
func at(v float64) string { return units.Decimal(v, 2) }

// time returns a time with its unit as text.
func (p *picture) time(t int64) string {
	text := units.Decimal(float64(t)/float64(max(p.step.Scale, 1)), 3)
	return text + " " + p.unit(text != "1")
}

// unit returns the unit of time.
func (p *picture) unit(plural bool) string {
	switch {
	case p.step.Unit != "":
		return p.step.Unit
	case plural:
		return "ticks"
	}
	return "tick"
}

// held returns an amount on a curve as text.
func (p *picture) held(amount float64) string {
	if p.bytes {
		return units.Size(int64(amount))
	}
	return units.Decimal(amount, 2)
}

// heldUnit returns the unit of the peak, for use in a sentence.
func (p *picture) heldUnit() string {
	switch {
	case p.bytes:
		return ""
	case p.most == 1:
		return " microbatch in flight"
	}
	return " microbatches in flight"
}

// open writes the beginning of the picture: style, page, title and facts.
func (p *picture) open() {
	plan, width := p.step.Plan, left+p.plot+right
	facts := p.facts()
	title := wrap(plan.Name, int((width-40)/titleChar))
	first := titleLine * float64(1-len(title)) // offset of the first line of the title; the last line has offset 0
	shift := ""
	if first < 0 {
		shift = ` y="` + at(first) + `"`
	}
	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 %s %[1]s %[2]s" role="img">`+"\n", at(width), at(p.height-first), at(first))
	p.printf("<title>%s</title>\n<desc>%s</desc>\n<style>%s</style>\n", escape(plan.Name), escape(facts), style())
	p.printf(`<rect class="page"%s width="%s" height="%s" rx="8"/>`+"\n", shift, at(width), at(p.height-first))
	for i, line := range title {
		p.printf(`<text class="title" x="20" y="%s">%s</text>`+"\n", at(33+first+titleLine*float64(i)), escape(line))
	}
	p.printf(`<text x="20" y="54">%s</text>`+"\n", escape(facts))
}

// wrap breaks a title into lines of at most this number of characters, at spaces if possible. A title
// that needs more than maxLines ends in an ellipsis.
func wrap(text string, width int) (lines []string) {
	rest := []rune(text)
	for len(rest) > width && len(lines) < maxLines-1 {
		end := width
		for end > width/2 && rest[end] != ' ' {
			end--
		}
		if rest[end] != ' ' {
			end = width
		}
		lines, rest = append(lines, string(rest[:end])), rest[end:]
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
	}
	if len(rest) > width {
		rest = append(rest[:width-1:width-1], '…')
	}
	return append(lines, string(rest))
}

// facts returns a line with the step's figures, or Step.Facts if Step.Rows is set.
func (p *picture) facts() string {
	if p.step.Rows != nil {
		return p.step.Facts
	}
	plan, c := p.step.Plan, p.clocks
	facts := []string{
		units.Number(plan.Placement.Ranks, "rank"), units.Number(plan.Placement.Stages(), "stage"), units.Number(plan.Microbatches, "microbatch"),
		"makespan " + p.time(c.makespan()),
		"bubble " + units.Percent(c.bubble(c.makespan()), 1) + " (" + units.Percent(c.bubble(c.span), 1) + " of the span)",
	}
	worst := 0
	for rank := range p.curves {
		if p.curves[rank].peak > p.curves[worst].peak {
			worst = rank
		}
	}
	if len(p.curves) > 0 && p.most > 0 {
		facts = append(facts, fmt.Sprintf("peak %s on rank %d", p.held(p.most)+p.heldUnit(), worst))
	}
	return strings.Join(facts, " · ")
}

// legend returns the legend for the colors and shades in use, and its width.
func (p *picture) legend() (text string, end float64) {
	var b strings.Builder
	var shown [schedule.NumKinds]bool
	chunks := 1
	for rank, list := range p.step.Events {
		for _, e := range list {
			shown[e.Action.Kind()] = shown[e.Action.Kind()] || occupies(e) || e.Copied.End > e.Copied.Start
		}
		_, _, stages := p.step.row(rank)
		chunks = max(chunks, len(stages))
	}
	x := 20.0
	const y = 76.0
	label := func(text string) {
		fmt.Fprintf(&b, `<text class="small" x="%s" y="%s">%s</text>`+"\n", at(x), at(y), escape(text))
		x += 5.7*float64(len(text)) + 22
	}
	for _, k := range kinds {
		if shown[k.kind] {
			fmt.Fprintf(&b, `<rect class="%v" x="%s" y="%s" width="14" height="11" rx="2"/>`, k.kind, at(x), at(y-10))
			x += 20
			label(k.word)
		}
	}
	if chunks > 1 {
		for place := range min(chunks, 4) {
			fmt.Fprintf(&b, `<rect class="F" fill-opacity="%s" x="%s" y="%s" width="14" height="11" rx="2"/>`,
				at(strength(place, min(chunks, 4))), at(x), at(y-10))
			x += 15
		}
		x += 5
		label("from the first to the last stage of a rank")
	}
	if p.step.Front != nil {
		fmt.Fprintf(&b, `<circle class="at" cx="%s" cy="%s" r="7"/>`, at(x+7), at(y-4))
		x += 20
		label("blamed; nothing to the right of the line has run")
	}
	if p.most > 0 {
		fmt.Fprintf(&b, `<path class="area" d="M%s %sv-6h7v-4h7v10z"/><path class="line" d="M%[1]s %[3]sh7v-4h7"/>`, at(x), at(y+1), at(y-5))
		x += 20
		if p.bytes {
			label("bytes live on the rank")
		} else {
			label("microbatches in flight on the rank")
		}
	}
	return b.String(), x
}

// axis writes the time axis, with its grid behind everything else.
func (p *picture) axis() {
	length := float64(p.clocks.length()) / float64(max(p.step.Scale, 1))
	low, high := p.y(0), p.height-bottom+6
	p.printf(`<path class="axis" d="M%s %sh%s"/>`+"\n", at(left), at(high), at(p.plot))
	if length > 0 {
		step, decimals := roundStep(length * 74 / p.plot)
		if p.step.Scale < 2 && step < 1 {
			step, decimals = 1, 0
		}
		for i := 0; float64(i)*step <= length*(1+1e-9); i++ {
			x := left + p.plot*float64(i)*step/length
			p.printf(`<path class="grid" d="M%s %sV%s"/><path class="axis" d="M%[1]s %[3]sv4"/>`, at(x), at(low), at(high))
			p.printf(`<text class="small" x="%s" y="%s" text-anchor="middle">%s</text>`+"\n", at(x), at(high+17), units.Decimal(float64(i)*step, decimals))
		}
	}
	p.printf(`<text class="small" x="%s" y="%s">%s</text>`+"\n", at(left+p.plot+14), at(high+17), escape(p.unit(true)))
}

// rank writes a rank's row, with its curve below.
func (p *picture) rank(rank int) {
	y := p.y(rank)
	name, note, _ := p.step.row(rank)
	p.printf(`<text class="rank" x="20" y="%s">%s</text>`, at(y+18), escape(name))
	p.printf(`<text class="small" x="20" y="%s">%s</text>`+"\n", at(y+36), escape(note))
	p.printf(`<rect class="lane" x="%s" y="%s" width="%s" height="%s"/>`+"\n", at(left), at(y), at(p.plot), at(lane))
	p.curve(rank, y+lane+p.copies+curveGap)

	p.printf(`<g class="n">` + "\n")
	for _, b := range p.boxes[rank] {
		p.box(b, y)
		if b.half == 2 {
			x := p.x(b.Start)
			p.printf(`<rect class="pair" x="%s" y="%s" width="%s" height="%s" rx="2.5"/>`, at(x+0.7), at(y+0.2), at(max(p.x(b.End)-x-1.4, 0.2)), at(lane-0.4))
		}
		p.printf("\n")
	}
	for i, first := range p.rows {
		for direction := range 2 {
			for _, b := range p.step.copies(rank, first+direction) {
				p.box(b, y+float64(i+1)*(curveGap+lane))
				p.printf("\n")
			}
		}
	}
	p.printf("</g>\n")
}

// stageList returns the stages of a rank, or their number if there is no room for them.
func stageList(stages []int) string {
	if len(stages) == 1 {
		return "stage " + strconv.Itoa(stages[0])
	}
	list := "stages " + strings.Trim(fmt.Sprint(stages), "[]")
	if len(stages) == 0 || len(list) > 17 {
		list = units.Number(len(stages), "stage")
	}
	return list
}

// box draws a computation in a row whose top is at y. The tooltip shows its name and times.
func (p *picture) box(b box, y float64) {
	const inset = 0.6 // left and right, between adjacent boxes
	a, x, width, height := b.Action, p.x(b.Start), p.x(b.End)-p.x(b.Start), lane
	if b.half > 0 {
		height /= 2
		y += float64(b.half-1) * height
	}
	shade := ""
	if b.strength < 1 {
		shade = ` fill-opacity="` + at(b.strength) + `"`
	}
	p.printf(`<rect class="%v"%s x="%s" y="%s" width="%s" height="%s" rx="2"><title>%v, %s to %s</title></rect>`,
		a.Kind(), shade, at(x+inset), at(y), at(max(width-2*inset, 0.3)), at(height),
		a, escape(p.time(b.Start-p.clocks.begin)), escape(p.time(b.End-p.clocks.begin)))

	number := strconv.Itoa(a.Microbatch())
	if a.Kind().OfStage() {
		number = strconv.Itoa(a.Stage())
	}
	if a.Kind() == schedule.Quantize {
		number = "Q"
	}
	baseline, class := 4.0, ""
	if height < lane || float64(len(number))*digit+2 > width {
		baseline, class = 3.4, "h"
		if float64(len(number))*smallDigit+1 > width {
			return
		}
	}
	color, _ := palette.Kind(a.Kind())
	class += " " + palette.Text(color, b.strength)
	if class = strings.TrimSpace(class); class != "" {
		class = ` class="` + class + `"`
	}
	p.printf(`<text%s x="%s" y="%s">%s</text>`, class, at(x+width/2), at(y+height/2+baseline), number)
}

// curve draws the curve of a rank, and writes its peak, unless all curves are 0.
func (p *picture) curve(rank int, y float64) {
	c, low := p.curves[rank], y+curveSize
	if p.most == 0 {
		return
	}
	height := func(live float64) float64 { return low - curveSize*live/p.most }
	var line strings.Builder
	line.WriteString("M" + at(left) + " " + at(low))
	first := len(c.levels) - 1 // index of the first level at the maximum
	for i, l := range c.levels {
		line.WriteString("H" + at(p.x(l.from)) + "V" + at(height(l.live)))
		if l.live > c.levels[first].live || l.live == c.levels[first].live && i < first {
			first = i
		}
	}
	line.WriteString("H" + at(left+p.plot))
	p.printf(`<path class="area" d="%sV%sz"/><path class="line" d="%[1]s"/>`, line.String(), at(low))
	if len(c.levels) > 0 {
		l := c.levels[first]
		p.printf(`<circle class="peak" cx="%s" cy="%s" r="2.6"/>`, at(p.x(l.from)), at(height(l.live)))
	}
	p.printf(`<text class="small" x="%s" y="%s">peak %s</text>`+"\n", at(left+p.plot+14), at(low-2), p.held(c.peak))
}
