package fit

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/internal/formats/jsonfile"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Pieces is a model profile from weir.profile: the bytes that each piece of the model keeps for a
// microbatch, and its operations. A stage is a run of pieces. docs/profile.md describes the file.
type Pieces struct {
	Form     string            `json:"form"`
	Schema   int               `json:"schema"`
	Model    string            `json:"model"`
	Settings map[string]string `json:"settings"`
	Fitted   []int             `json:"fitted"`
	Checked  [][]int           `json:"checked"`
	Pieces   []Piece           `json:"pieces"`
	Kinds    []PieceKind       `json:"kinds"`
	Shared   []SharedBytes     `json:"shared,omitzero"`
	Tied     []TiedParameter   `json:"tied,omitzero"`
	Batch    PieceAmount       `json:"batch"`
	Notes    []string          `json:"notes,omitzero"`
}

// Piece is a part of the model that is not cut.
type Piece struct {
	Name string `json:"name"`
	Kind int    `json:"kind"` // index into Pieces.Kinds
}

// ByAction holds a value for each of the actions.
type ByAction[A any] struct {
	F A `json:"F"`
	B A `json:"B"`
	I A `json:"I"`
	W A `json:"W"`
}

// of returns the value for one of the actions.
func (b *ByAction[A]) of(action string) *A {
	return map[string]*A{"F": &b.F, "B": &b.B, "I": &b.I, "W": &b.W}[action]
}

// PieceKind holds the amounts of pieces with the same code and sizes.
type PieceKind struct {
	Parameters struct {
		Count   int64 `json:"count"`
		Trained int64 `json:"trained"`
		Experts int64 `json:"experts"` // the part of Count that is in experts
		Bytes   int64 `json:"bytes"`
		Buffers int64 `json:"buffers"` // in bytes
	} `json:"parameters"`
	Saved     PieceAmount             `json:"saved"`
	Input     PieceAmount             `json:"input"`  // the part of Saved that is the piece's input
	Cached    PieceAmount             `json:"cached"` // also kept until the end of F
	Freed     PieceAmount             `json:"freed"`  // the part of Saved that I frees on the last piece of a stage
	Carry     PieceAmount             `json:"carry"`
	Border    PieceAmount             `json:"border"` // the piece's output, and its gradient
	Temporary ByAction[[]PieceAmount] `json:"temporary"`
	FLOPs     ByAction[PieceAmount]   `json:"flops"`
	Seconds   map[string]PieceAmount  `json:"seconds,omitzero"` // by action, if measured
}

// SharedBytes is memory that each stage with at least one of the pieces keeps once.
type SharedBytes struct {
	Pieces []int       `json:"pieces"`
	Saved  PieceAmount `json:"saved"`
}

// TiedParameter is a parameter that several pieces use. It counts as a part of the first piece. A stage that
// has some of the other pieces but not the first keeps a copy.
type TiedParameter struct {
	Name   string `json:"name"`
	Pieces []int  `json:"pieces"`
	Count  int64  `json:"count"`
	// Trained is Count, or 0 if the parameter is frozen.
	Trained int64 `json:"trained"`
	Bytes   int64 `json:"bytes"`
}

// PieceAmount is a number of bytes, operations or seconds of a microbatch: Constant + Sequence * sequences +
// Token * tokens + Square * squares + Longest * L + LongestSquare * L * L + Tiled * padded + TiledSquare *
// padded squares, where squares is the sum of the squared lengths of the sequences and L is the longest length.
// padded and padded squares are the sums of R and of length * R over the sequences, where R is the length
// rounded up to a multiple of Tile.
type PieceAmount struct {
	Constant      float64 `json:"constant,omitzero"`
	Sequence      float64 `json:"sequence,omitzero"`
	Token         float64 `json:"token,omitzero"`
	Square        float64 `json:"square,omitzero"`
	Longest       float64 `json:"longest,omitzero"`
	LongestSquare float64 `json:"longest_square,omitzero"`
	Tile          int     `json:"tile,omitzero"`
	Tiled         float64 `json:"tiled,omitzero"`
	TiledSquare   float64 `json:"tiled_square,omitzero"`
	Above         float64 `json:"above,omitzero"`
	Source        string  `json:"source,omitzero"`
	// Several is the amount for microbatches of more than one sequence, if it is different.
	Several *PieceAmount `json:"several,omitzero"`
}

// at returns the amount for the microbatches of a setup. Ranks that share a sequence have equal shares of
// all amounts that grow with its length.
func (a *PieceAmount) at(s *Setup) float64 {
	if a.Several != nil && s.Microbatch > 1 {
		a = a.Several
	}
	tile := max(a.Tile, 1)
	n, padded, b := float64(s.Sequence), float64((s.Sequence+tile-1)/tile*tile), float64(max(s.Microbatch, 1))
	each := a.Token*n + a.Square*n*n + a.Tiled*padded + a.TiledSquare*n*padded
	return a.Constant + a.Sequence*b + (each*b+a.Longest*n+a.LongestSquare*n*n)/float64(max(s.Context, 1))
}

func (a *PieceAmount) bytes(s *Setup) int64 { return int64(a.at(s) + 0.5) }

const piecesForm = "weir model profile"

// maxPieces is the maximum size of a profile's file in bytes.
const maxPieces = 16 << 20

var piecesFile = jsonfile.Form{Kind: ErrModel, Package: "fit", Content: "the profile of a model", Form: piecesForm, Schema: 2, Bytes: maxPieces, Values: schedule.MaxStages, Complete: true}

// IsPieces reports whether a text is an object of JSON that says its form, as profiles by weir.profile do. [ReadPieces]
// then explains what is wrong if it is of another form, or broken.
func IsPieces(text []byte) (is bool) {
	_ = jsonfile.Members(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), "", func(name string, _ int, _ []byte) *jsonfile.Error {
		is = is || name == "form"
		return nil
	})
	return is
}

// ReadPieces reads a profile that weir.profile has written, and validates it. Errors wrap ErrModel.
func ReadPieces(r io.Reader) (*Pieces, error) {
	p := &Pieces{}
	if err := piecesFile.Read(r, p, &p.Schema); err != nil {
		return nil, err
	}
	return p, p.validate()
}

// Layers returns the number of layers: all pieces except the first and the last.
func (p *Pieces) Layers() int { return len(p.Pieces) - 2 }

// Typical returns the length for which the profile was requested.
func (p *Pieces) Typical() int { return slices.Max(p.Fitted) }

// Parameters returns the number of parameters. Those that are tied count once.
func (p *Pieces) Parameters() (n int64) {
	for _, one := range p.Pieces {
		n += p.Kinds[one.Kind].Parameters.Count
	}
	return n
}

// Adapt returns the setup with the precision of the profile, unless the setup has one. It returns an error for
// settings that a profile does not cover.
func (p *Pieces) Adapt(s Setup) (Setup, error) {
	if s.Precision == "" {
		switch dtype, autocast := p.Settings["dtype"], p.Settings["autocast"]; {
		case autocast != "":
			s.Precision = AMP
		case dtype == "float32" || dtype == "":
			s.Precision = FP32
		case dtype == "float16":
			s.Precision = FP16
		}
	}
	f := faults{kind: ErrSetup}
	f.refuse(s.Tensor > 1 || s.SequenceParallel, "the profile has whole layers: profile the model with its layers divided over %d ranks, and leave out --tensor", s.Tensor)
	f.refuse(s.Recompute.All || len(s.Recompute.Groups) > 0, "a profile says itself what is computed again: profile the model with checkpoint, and leave out --recompute")
	if err := p.Within(int64(s.Sequence)); err != nil {
		f.list = append(f.list, err)
	}
	if len(f.list) == 0 {
		refuseAt(&f, p.bounded(), &s)
	}
	return s, errors.Join(f.list...)
}

// Within returns an error that wraps ErrSetup if the profile does not hold for one of the lengths.
func (p *Pieces) Within(sequences ...int64) error {
	low, high := int64(slices.Min(p.Fitted)), int64(1)
	for _, lengths := range p.Checked {
		high = max(high, int64(slices.Max(lengths)))
	}
	for _, n := range sequences {
		if n < low || n > high {
			return diagnostic.Errorf(ErrSetup, "a sequence has %d tokens, and the profile holds from %d to %d: profile the model with --seq %d", n, low, high, n)
		}
	}
	return nil
}

// shape returns a model for validating a setup: a setup is valid for the pieces if it is valid for this model.
func (p *Pieces) shape(s *Setup) *Model {
	m := &Model{Heads: s.Tensor}
	for i := range p.Kinds {
		if p.Kinds[i].Parameters.Experts > 0 {
			m.Experts = s.Expert
		}
	}
	return m
}

// spans returns the first piece of each stage of a cut, and the number of pieces.
func (p *Pieces) spans(cut []int) []int {
	spans := []int{0}
	next := 1
	for _, layers := range cut[:len(cut)-1] {
		next += layers
		spans = append(spans, next)
	}
	return append(spans, len(p.Pieces))
}

// touches reports whether a stage with the pieces from first to before end has one of the given pieces.
func touches(pieces []int, first, end int) bool {
	return slices.ContainsFunc(pieces, func(i int) bool { return i >= first && i < end })
}

// only restricts the tensor to one kind of backward.
func (t Tensor) only(in Only) Tensor { t.Only = in; return t }

// layers returns the layers of a stage. The first stage has no input to differentiate, so with a split
// backward PyTorch's runtime and weir.Runner compute nothing in its I, and its whole backward in W.
func (p *Pieces) layers(s *Setup, first, end int) (list []Layer) {
	literal := func(n int64) Formula { return Formula(strconv.FormatInt(max(n, 0), 10)) }
	most := func(k *PieceKind, action string) (n int64) {
		for _, a := range *k.Temporary.of(action) {
			n = max(n, a.bytes(s))
		}
		return n
	}
	for i := first; i < end; i++ {
		k, top := &p.Kinds[p.Pieces[i].Kind], i == end-1
		saved, freed, back, held := k.Saved.bytes(s), int64(0), int64(0), int64(0)
		if top && first > 0 {
			freed = k.Freed.bytes(s)
		}
		if top { // Within a stage, gradients of outputs may be changed in place; the runtime keeps the one that the stage receives.
			held = k.Border.bytes(s)
		}
		if i > 0 {
			back = p.Kinds[p.Pieces[i-1].Kind].Border.bytes(s)
		}
		l := Layer{Name: p.Pieces[i].Name}
		input := Tensor{Name: "input", Role: Input, Freed: Moment{F, 3}}
		if received := k.Input.bytes(s); received > 0 {
			input.Freed, input.B = atW(), 3
			saved -= received
		}
		gradient := Tensor{Name: "gradient of output", Role: Gradient, Freed: atI(3), B: 3}
		returned := Tensor{Name: "gradient of input", Bytes: literal(back), Class: memory.ActGrad, Role: Back, Born: atI(1)}
		if first == 0 {
			returned = returned.only(InWhole)
			if gradient.Freed = atW(); !top {
				gradient = gradient.only(InWhole)
			}
		}
		l.Tensors = append(l.Tensors, input, gradient, returned)
		if i == first {
			for n := range p.Shared {
				if touches(p.Shared[n].Pieces, first, end) {
					l.Tensors = append(l.Tensors, kept("shared", literal(p.Shared[n].Saved.bytes(s)), 1, atW(), 3))
				}
			}
		}
		l.Tensors = append(l.Tensors,
			kept("saved", literal(saved-freed), 1, atW(), 3), kept("saved for I", literal(freed), 1, atI(actionEnd), 3), // with the graph, which W needs
			Tensor{Name: "output", Bytes: literal(k.Border.bytes(s)), Class: memory.Activation, Role: Output, Born: Moment{F, 1}},
			scratch("temporary in F", literal(most(k, "F")), F, 1, 2), scratch("cached", literal(k.Cached.bytes(s)), F, 1, 3),
			scratch(temporaryInB, literal(most(k, "B")-back+held), I, 1, 2).only(InWhole))
		if first == 0 {
			l.Tensors = append(l.Tensors, scratch(temporaryInW, literal(most(k, "B")+held), W, 0, 0))
		} else {
			l.Tensors = append(l.Tensors, carried("carry", literal(k.Carry.bytes(s)), 1, 3).only(InSplit),
				scratch("temporary in I", literal(most(k, "I")-back+held), I, 1, 2).only(InSplit), scratch(temporaryInW, literal(most(k, "W")), W, 0, 0))
		}
		list = append(list, l)
	}
	return list
}

// Profile returns the profile of the stages of a cut.
func (p *Pieces) Profile(setup Setup, cut []int) (*layout.Profile, error) {
	s := new(setup.withDefaults())
	var stages [][]Layer
	spans := p.spans(cut)
	for stage := range cut {
		stages = append(stages, p.layers(s, spans[stage], spans[stage+1]))
	}
	batch := max(p.Batch.bytes(s), 1)
	return Compose(stages, batch, batch, nil)
}

// The names of tensors that mark where gradients of weights appear.
const temporaryInB, temporaryInW = "temporary in B", "temporary in W"

// Gradients returns the gradients of the stages of a cut, whose profile must be that of [Pieces.Profile]. In
// a B, and in the W of the first stage, which is its whole backward, the gradients of a piece appear when
// the backward of the piece begins. In another W, whose order the runtime chooses, all appear when the W
// begins.
func (p *Pieces) Gradients(setup Setup, cut []int, profile *layout.Profile) []Gradients {
	s := new(setup.withDefaults())
	all := make([]Gradients, len(cut))
	spans := p.spans(cut)
	for stage := range all {
		first, end, above := spans[stage], spans[stage+1], int64(0)
		marks := map[string]map[string]int{temporaryInB: {}, temporaryInW: {}} // parts by name of the buffer
		g := &all[stage]
		for i := end - 1; i >= first; i-- {
			for tensor, parts := range marks {
				parts[bufferName(p.Pieces[i].Name, i-first, tensor)] = len(g.Parts)
			}
			bytes := p.static(s, [][2]int{{i, end}}).Gradients
			g.Parts, above = append(g.Parts, bytes-above), bytes
		}
		with := func(tensor string) map[int]int {
			buffers := map[int]int{}
			for n, buffer := range profile.Shapes[0].Stages[stage].Buffers {
				if part, ok := marks[tensor][buffer.Name]; ok {
					buffers[n] = part
				}
			}
			return buffers
		}
		if g.With = map[schedule.Kind]map[int]int{schedule.B: with(temporaryInB)}; first == 0 {
			g.With[schedule.W] = with(temporaryInW)
		}
	}
	return all
}

// static returns the memory of a rank between steps. stages has the range of pieces of each of the rank's stages.
func (p *Pieces) static(s *Setup, stages [][2]int) (total Static) {
	weight, _, _ := s.perParameter()
	replicas := int64(s.Data * s.Context)
	gathered := make([]int64, len(stages))
	for n, span := range stages {
		count := func(all, trained, experts int64) {
			own := (experts + int64(s.Expert) - 1) / int64(s.Expert)
			gathered[n] += all - experts + own
			if all == trained {
				total.add(s, all-experts, replicas)
				total.add(s, own, max(replicas/int64(s.Expert), 1))
				return
			}
			total.add(s, trained, replicas)
			frozen := Setup{Precision: s.Precision, Zero: s.Zero, Optimizer: SGD}
			before := total
			total.add(&frozen, all-trained, replicas)
			total.Gradients, total.Optimizer = before.Gradients, before.Optimizer
		}
		for i := span[0]; i < span[1]; i++ {
			k := &p.Kinds[p.Pieces[i].Kind].Parameters
			count(k.Count, k.Trained, k.Experts)
			total.Weights += k.Buffers
		}
		for _, t := range p.Tied {
			if touches(t.Pieces[1:], span[0], span[1]) && !touches(t.Pieces[:1], span[0], span[1]) {
				count(t.Count, t.Trained, 0)
			}
		}
	}
	if s.Zero == 3 { // the largest stages may be gathered at the same time
		slices.Sort(gathered)
		for _, n := range gathered[max(len(gathered)-s.Gathered, 0):] {
			total.Weights += n * weight
		}
	}
	return total
}

// amount returns the amount for the microbatches of a setup. If the lengths vary, the amount holds for
// microbatches of any lengths: memory that sequences share counts for each of them, and padding is that of
// the shortest sequences.
func (a *PieceAmount) amount(s *Setup, least int, vary bool) lengths.Amount {
	if !vary {
		return lengths.Amount{Constant: a.at(s)}
	}
	if a.Several != nil {
		a = a.Several
	}
	each, padded := 1/float64(max(s.Context, 1)), 1+float64(max(a.Tile, 1)-1)/float64(max(least, 1))
	return lengths.Amount{Constant: a.Constant, Token: each * (a.Token + a.Longest + a.Tiled*padded), Square: each * (a.Square + a.LongestSquare + a.TiledSquare*padded)}
}

// ByLength checks that the costs of the profile can be functions of the lengths alone. If it has an amount for
// each sequence, whatever its length, ByLength returns an error that wraps ErrModel.
func (p *Pieces) ByLength() error {
	for i := range p.Kinds {
		k := &p.Kinds[i]
		for _, a := range []PieceAmount{k.Saved, k.Freed, k.Carry, k.Border, k.FLOPs.F, k.FLOPs.B, k.Seconds["F"], k.Seconds["B"]} {
			if a.Sequence != 0 || a.Several != nil && a.Several.Sequence != 0 {
				piece := slices.IndexFunc(p.Pieces, func(one Piece) bool { return one.Kind == i })
				return diagnostic.Errorf(ErrModel, "%s has an amount for each sequence, whatever its length, which costs by length do not have: give --seq and --sequences", p.Pieces[piece].Name)
			}
		}
	}
	return nil
}

// stageAmounts holds the times of a stage, in nanoseconds, and its bytes.
type stageAmounts struct{ f, i, w, b, output, gradient, saved, freed, carry lengths.Amount }

// amounts returns the amounts of a stage that has the pieces from first to before end. Times are the measured
// ones, or follow from the number of operations and a speed in operations per second.
func (p *Pieces) amounts(s *Setup, first, end int, speed float64, vary bool) (sum stageAmounts) {
	for i := first; i < end; i++ {
		k := &p.Kinds[p.Pieces[i].Kind]
		time := func(action string) lengths.Amount {
			if a, measured := k.Seconds[action]; measured {
				return a.amount(s, slices.Min(p.Fitted), vary).Scale(1e9)
			}
			return k.FLOPs.of(action).amount(s, slices.Min(p.Fitted), vary).Scale(1e9 / speed)
		}
		sum.f, sum.i, sum.w, sum.b = sum.f.Add(time("F")), sum.i.Add(time("I")), sum.w.Add(time("W")), sum.b.Add(time("B"))
		sum.saved, sum.carry = sum.saved.Add(k.Saved.amount(s, slices.Min(p.Fitted), vary)), sum.carry.Add(k.Carry.amount(s, slices.Min(p.Fitted), vary))
	}
	for n := range p.Shared {
		if touches(p.Shared[n].Pieces, first, end) {
			sum.saved = sum.saved.Add(p.Shared[n].Saved.amount(s, slices.Min(p.Fitted), vary))
		}
	}
	last := &p.Kinds[p.Pieces[end-1].Kind]
	sum.output, sum.freed = last.Border.amount(s, slices.Min(p.Fitted), vary), last.Freed.amount(s, slices.Min(p.Fitted), vary)
	if first == 0 { // It has no input to differentiate: its whole backward is in W.
		sum.i, sum.w, sum.freed, sum.carry = lengths.Amount{}, sum.b, lengths.Amount{}, sum.output
	}
	if first > 0 {
		sum.gradient = p.Kinds[p.Pieces[first-1].Kind].Border.amount(s, slices.Min(p.Fitted), vary)
	}
	return sum
}

// costs returns the amounts as the costs of a stage.
func (a *stageAmounts) costs() (c simulate.StageCosts) {
	t, q := &c.PerToken, &c.PerSquare
	for _, one := range []struct {
		amount        *lengths.Amount
		constant      *int64
		token, square *float64
	}{
		{&a.f, &c.F, &t.F, &q.F}, {&a.i, &c.I, &t.I, &q.I}, {&a.w, &c.W, &t.W, &q.W}, {&a.b, &c.B, &t.B, &q.B},
		{&a.output, &c.Output, &t.Output, &q.Output}, {&a.gradient, &c.Gradient, &t.Gradient, &q.Gradient},
		{&a.saved, &c.Saved, &t.Saved, &q.Saved}, {&a.freed, &c.FreedByI, &t.FreedByI, &q.FreedByI}, {&a.carry, &c.Carry, &t.Carry, &q.Carry},
	} {
		*one.constant, *one.token, *one.square = int64(min(one.amount.Constant+0.5, 1<<62)), one.amount.Token, one.amount.Square
	}
	return c
}

// Costs returns the costs of the stages of a cut, with speed in operations per second and bandwidth in
// bytes per second. If the lengths of microbatches vary, the costs have rates, and the caller adds the
// lengths. The costs do not contain temporary memory.
func (p *Pieces) Costs(s Setup, cut []int, speed, bandwidth float64, vary bool) *simulate.Costs {
	s = s.withDefaults()
	costs := &simulate.Costs{Unit: "ns", Latency: 10_000, PerMiB: int64(1e9 * (1 << 20) / bandwidth)}
	spans := p.spans(cut)
	for stage := range cut {
		c := new(p.amounts(&s, spans[stage], spans[stage+1], speed, vary)).costs()
		own := p.static(&s, [][2]int{{spans[stage], spans[stage+1]}})
		c.Weights, c.Gradients, c.Optimizer = own.Weights, own.Gradients, own.Optimizer
		costs.Stages = append(costs.Stages, c)
	}
	return costs
}

// Cut returns the given cut if it divides all layers among the stages. Without a cut, it returns the one
// whose slowest stage is as fast as possible. Errors wrap ErrSetup.
func (p *Pieces) Cut(s Setup, given []int, stages int) ([]int, error) {
	if given != nil || stages < 1 || stages-2 > p.Layers() {
		return cutOf(p.Layers(), given, stages, 0)
	}
	s = s.withDefaults()
	each := make([]simulate.StageCosts, len(p.Pieces))
	for i := range each {
		each[i] = new(p.amounts(&s, i, i+1, 1e12, false)).costs()
	}
	return cutLayers(each, p.Layers(), stages), nil
}
