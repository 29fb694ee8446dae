package kerneltest

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
)

func headCases() []Case {
	return []Case{
		newCase("head", false, headForward),
		newCase("head/backward", false, headBackward),
		newCase("head/weight 0", false, headWeightless),
		newCase("head/labels", false, headLabels),
		newCase("head/cells", false, headCells),
	}
}

// headShapes are numbers of tokens, width and vocabulary size, with token counts around the
// tile sizes of devices.
var headShapes = [][3]int{{1, 1, 1}, {1, 4, 7}, {3, 5, 2}, {64, 8, 33}, {65, 3, 11}, {130, 6, 19}, {520, 2, 3}, {3, 2, 1100}}

// head draws the operands of a head and copies them to the device.
func (l *lab) head(tokens, width, vocabulary int) (op kernels.HeadLoss, x, table, weights []float32, labels []int32) {
	x, table = l.normal(tokens*width, 1), l.normal(vocabulary*width, 1)
	labels, weights = l.ids(tokens, vocabulary), make([]float32, tokens)
	for t := range weights {
		weights[t] = []float32{1, 0.25, 3, 0}[t%4]
	}
	op = kernels.HeadLoss{
		X: l.put("X", x), Table: l.put("Table", table), Labels: l.putInts("Labels", labels), Weights: l.put("Weights", weights),
		LSE: l.result("LSE", tokens), Workspace: l.result("Workspace", l.d.HeadWorkspace(tokens, width, vocabulary)),
		Tokens: tokens, Width: width, Vocabulary: vocabulary,
	}
	return op, x, table, weights, labels
}

// headBack returns the backward pass of a head, with unwritten results.
func (l *lab) headBack(op kernels.HeadLoss) kernels.HeadLossBackward {
	return kernels.HeadLossBackward{
		X: op.X, Table: op.Table, Labels: op.Labels, Weights: op.Weights, LSE: op.LSE, Workspace: op.Workspace, Logits: op.Logits,
		DX: l.result("DX", op.X.N), DTable: l.result("DTable", op.Table.N), Seed: 1,
		Tokens: op.Tokens, Width: op.Width, Vocabulary: op.Vocabulary,
	}
}

// loss runs the forward pass and returns its sum and weight.
func (l *lab) loss(title string, op kernels.HeadLoss) (sum, weight float64) {
	l.do(title, func() (err error) {
		sum, weight, err = l.d.HeadLoss(op)
		return err
	}, op.LSE, op.Workspace)
	return sum, weight
}

func headForward(l *lab) {
	for _, s := range headShapes {
		tokens, width, vocabulary := s[0], s[1], s[2]
		title := fmt.Sprintf("HeadLoss of %d tokens, width %d, vocabulary %d", tokens, width, vocabulary)
		op, x, table, weights, labels := l.head(tokens, width, vocabulary)
		sum, weight := l.loss(title, op)
		want, lse := headLoss(wide(x), wide(table), labels, wide(weights), tokens, width, vocabulary)
		var total, scale float64
		for t, w := range weights {
			total += float64(w)
			scale += float64(w) * (1 + math.Abs(lse[t]))
		}
		if d := math.Abs(sum - want); !(d <= 0x1p-18*scale) {
			l.fault("%s: the sum is %v, want %v within %.3g", title, sum, want, 0x1p-18*scale)
		}
		if weight != total {
			l.fault("%s: the weight is %v, want %v", title, weight, total)
		}
		l.near(title+": LSE", l.read(op.LSE), lse, 0x1p-18)
		l.drop()
	}
}

func headBackward(l *lab) {
	for _, s := range headShapes {
		for _, accumulate := range []bool{false, true} {
			tokens, width, vocabulary := s[0], s[1], s[2]
			if vocabulary == 1 {
				continue // its loss is 0 for any operands
			}
			title := fmt.Sprintf("HeadLossBackward of %d tokens, width %d, vocabulary %d, Accumulate %t", tokens, width, vocabulary, accumulate)
			kept, x, table, weights, labels := l.head(tokens, width, vocabulary)
			l.loss(title, kept)
			const seed = 0.5
			op := l.headBack(kept)
			op.Seed, op.Accumulate = seed, accumulate
			var before []float32
			op.DTable, before = l.sum("DTable", vocabulary*width, accumulate)
			l.do(title, func() error { return l.d.HeadLossBackward(op) }, op.DX, op.DTable, op.Workspace)
			loss := func(x, table []float64) float64 {
				total, _ := headLoss(x, table, labels, wide(weights), tokens, width, vocabulary)
				return seed * total
			}
			l.slopes(title+": DX", l.read(op.DX), nil, wide(x), func(x []float64) float64 { return loss(x, wide(table)) })
			l.slopes(title+": DTable", l.read(op.DTable), before, wide(table), func(table []float64) float64 { return loss(wide(x), table) })

			alone := op
			alone.DX, alone.DTable = l.result("DX", tokens*width), kernels.Buffer{}
			l.do(title+" without DTable", func() error { return l.d.HeadLossBackward(alone) }, alone.DX, op.Workspace)
			l.exactly(title+": DX alone", l.read(alone.DX), l.read(op.DX))
			if !accumulate {
				alone.DX, alone.DTable = kernels.Buffer{}, l.result("DTable", vocabulary*width)
				l.do(title+" without DX", func() error { return l.d.HeadLossBackward(alone) }, alone.DTable, op.Workspace)
				l.exactly(title+": DTable alone", l.read(alone.DTable), l.read(op.DTable))
				l.headKept(title, kept, op)
			}
			l.drop()
		}
	}
}

// headCells applies to devices that add losses themselves. It checks that a cell equals a
// Ledger that records the results of HeadLoss: exactly, in any order of microbatches, with
// losses that are not finite, and with the error for an invalid weight.
func headCells(l *lab) {
	d, ok := l.d.(kernels.LossCells)
	if !ok {
		return
	}
	defs := []loss.Def{{Name: "other", Reduction: loss.Sum, Metric: true}, {Name: "loss", Reduction: loss.Mean, Objective: true}}
	cells, err := d.NewLossCells(len(defs))
	l.must("NewLossCells", err)
	fresh := func() *loss.Ledger {
		l.must("ClearLossCells", d.ClearLossCells(cells))
		ledger, err := loss.NewLedger(defs)
		l.must("NewLedger", err)
		return ledger
	}
	read := func(ledger *loss.Ledger) error {
		words := make([]int64, len(defs)*loss.DeviceWords)
		l.must("ReadLossCells", d.ReadLossCells(words, cells))
		for def := range defs {
			if err := ledger.Join(def, words[def*loss.DeviceWords:][:loss.DeviceWords]); err != nil {
				return err
			}
		}
		return nil
	}
	add := func(op kernels.HeadLoss, index, mb int) {
		l.do("AddHeadLoss", func() error { return d.AddHeadLoss(op, kernels.Cell{Buffer: cells, Index: index}, mb) }, op.LSE, op.Workspace)
	}
	bytes := func(ledger *loss.Ledger) string {
		var record loss.Record
		ledger.Snapshot(&record)
		b, err := record.AppendBinary(nil)
		l.must("AppendBinary", err)
		return string(b)
	}
	const tokens, width, vocabulary, microbatches = 3, 4, 7, 7
	var ops [microbatches]kernels.HeadLoss
	want := fresh()
	for mb := range ops {
		op, x, _, weights, _ := l.head(tokens, width, vocabulary)
		scale := float32(math.Ldexp(1, 9*mb-40)) // sums of very different magnitudes round unless they are exact
		for i := range weights {
			weights[i] *= scale
		}
		if mb == 3 || mb == 5 {
			x[0] = float32(math.NaN())
		}
		op.X, op.Weights = l.put("X", x), l.put("Weights", weights)
		sum, weight := l.loss("HeadLoss", op)
		l.must("Record", want.Record(1, mb, sum, weight))
		ops[mb] = op
	}
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5, 6}, {5, 2, 6, 0, 4, 3, 1}} {
		got := fresh()
		for _, mb := range order {
			add(ops[mb], 1, mb)
		}
		l.must("Join", read(got))
		if bytes(got) != bytes(want) {
			l.fault("AddHeadLoss in the order %v: the cells differ from a Ledger of the same numbers", order)
		}
	}
	op := ops[0]
	op.Weights = l.put("Weights", []float32{1, float32(math.Inf(1)), 1})
	ledger := fresh()
	add(op, 0, 9)
	if err := read(ledger); !errors.Is(err, loss.ErrWeight) {
		l.fault("AddHeadLoss with an infinite weight: %v, want ErrWeight", err)
	}
	for _, index := range []int{-1, len(defs)} {
		if err := d.AddHeadLoss(ops[0], kernels.Cell{Buffer: cells, Index: index}, 0); !errors.Is(err, kernels.ErrShape) {
			l.fault("AddHeadLoss to cell %d of %d: %v, want ErrShape", index, len(defs), err)
		}
	}
	_, err = l.d.Release(cells)
	l.must("Release", err)
	l.drop()
}

// headKept checks that no bit depends on the number of logits that are kept: for a forward
// pass, for a backward pass with both gradients at once, and for one that computes them one
// after the other.
func (l *lab) headKept(title string, forward kernels.HeadLoss, want kernels.HeadLossBackward) {
	sum, weight := l.loss(title, forward)
	lse, all := l.read(forward.LSE), want.Tokens*want.Vocabulary
	for _, n := range []int{1, (all + 1) / 2, all - 1, all} {
		if n == 0 {
			continue
		}
		title, op, back := fmt.Sprintf("%s, %d logits kept", title, n), forward, want
		op.Logits = l.result("Logits", n)
		if n == all {
			op.Workspace = kernels.Buffer{}
		}
		back.Logits, back.Workspace = op.Logits, op.Workspace
		run := func() {
			var s, w float64
			l.do(title, func() (err error) { s, w, err = l.d.HeadLoss(op); return err }, op.LSE, op.Workspace, op.Logits)
			if s != sum || w != weight {
				l.fault("%s: HeadLoss is %v with weight %v, want %v and %v", title, s, w, sum, weight)
			}
			l.exactly(title+": LSE", l.read(op.LSE), lse)
		}
		backward := func(gradients bool, dx, dtable kernels.Buffer) {
			back.DX, back.DTable, back.Gradients = dx, dtable, gradients
			l.do(title, func() error { return l.d.HeadLossBackward(back) }, dx, dtable, back.Workspace, back.Logits)
			if dx != (kernels.Buffer{}) {
				l.exactly(title+": DX", l.read(dx), l.read(want.DX))
			}
			if dtable != (kernels.Buffer{}) {
				l.exactly(title+": DTable", l.read(dtable), l.read(want.DTable))
			}
		}
		dx, dtable := l.result("DX", want.DX.N), l.result("DTable", want.DTable.N)
		run()
		backward(false, dx, dtable)
		run()
		backward(false, dx, kernels.Buffer{})
		backward(true, kernels.Buffer{}, dtable)
	}
}

// headWeightless checks that tokens of weight 0 contribute to nothing: the contents of their
// rows make no difference, even if these or the loss are not finite.
func headWeightless(l *lab) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, s := range [][3]int{{1, 3, 5}, {3, 2, 4}, {12, 5, 19}, {520, 2, 3}, {9, 2, 1100}} {
		for _, every := range []int{1, 2, 3, 600} { // with 1 there are no other tokens
			for _, accumulate := range []bool{false, true} {
				tokens, width, vocabulary := s[0], s[1], s[2]
				title := fmt.Sprintf("%d tokens, width %d, vocabulary %d, Accumulate %t, every %d. without weight", tokens, width, vocabulary, accumulate, every)
				op, x, table, _, _ := l.head(tokens, width, vocabulary)
				weights, before := make([]float32, tokens), l.normal(vocabulary*width, 1)
				for t := range weights {
					weights[t] = float32(t % every)
				}
				op.Weights = l.put("Weights", weights)
				run := func(rows []float32) (sum, weight float64, dx, dtable []float32) {
					op.X = l.put("X", rows)
					sum, weight = l.loss("HeadLoss of "+title, op)
					back := l.headBack(op)
					back.DTable, back.Accumulate = l.put("DTable", before), accumulate
					l.do("HeadLossBackward of "+title, func() error { return l.d.HeadLossBackward(back) }, back.DX, back.DTable, op.Workspace)
					return sum, weight, l.read(back.DX), l.read(back.DTable)
				}
				sum, weight, dx, dtable := run(x)
				for t, w := range weights {
					if w == 0 {
						copy(x[t*width:], [][]float32{{nan}, {1e30, -1e30}, {-inf}, {0, nan}}[t%4])
					}
				}
				otherSum, otherWeight, otherDX, otherDTable := run(x)
				if sum != otherSum || weight != otherWeight {
					l.fault("HeadLoss of %s is %v with weight %v, and %v with weight %v with other contents in their rows", title, sum, weight, otherSum, otherWeight)
				}
				l.exactly("DX of "+title, otherDX, dx)
				l.exactly("DTable of "+title, otherDTable, dtable)
				table[0] = nan // the gradients of the other tokens are NaN
				op.Table = l.put("Table", table)
				_, _, otherDX, _ = run(x)
				for t, w := range weights {
					if w == 0 {
						l.exactly("DX with a NaN in Table, of "+title, otherDX[t*width:][:width], make([]float32, width))
					}
				}
				l.drop()
			}
		}
	}
}

// headLabels checks labels that are not rows of the table.
func headLabels(l *lab) {
	for _, label := range []int32{-1, 4} {
		op, _, _, _, _ := l.head(3, 2, 4)
		op.Labels = l.putInts("Labels", []int32{0, 3, label})
		back := l.headBack(op)
		l.refuse(fmt.Sprintf("HeadLoss with label %d of 4", label), kernels.ErrShape, func() error { _, _, err := l.d.HeadLoss(op); return err })
		l.refuse(fmt.Sprintf("HeadLossBackward with label %d of 4", label), kernels.ErrShape, func() error { return l.d.HeadLossBackward(back) })
		l.drop()
	}
}
