package parity

import (
	"fmt"
	"math"
	"math/big"

	"github.com/weir-ml/weir/kernels"
)

// Sequence is one microbatch: tokens, labels and the labels' weights.
type Sequence struct {
	Tokens, Labels []int32
	Weights        []float32
}

// Totals is the result of a step.
type Totals struct {
	Sum, Weight float64 // over all microbatches
	GradNorm    float64
}

// Step runs all microbatches in order, forward and backward. The gradients of the parameters
// are those of the sum of losses, without a division.
func (m *Model) Step(step int64, seed uint64, batch []Sequence) (Totals, error) {
	var sum, weight ExactSum
	for k, sequence := range batch {
		t := &pass{Model: m, step: step, microbatch: k, seed: seed, tokens: len(sequence.Tokens)}
		s, w := t.microbatchPass(sequence)
		if err := t.free(); err != nil {
			return Totals{}, fmt.Errorf("parity: microbatch %d: %w", k, err)
		}
		sum.Add(s)
		weight.Add(w)
	}
	if !m.cfg.Untied {
		if err := m.dev.Add(m.grad("embedding.weight"), m.headGrad); err != nil {
			return Totals{}, err
		}
	}
	totals := Totals{Sum: sum.Float64(), Weight: weight.Float64()}
	squares := 0.0
	for _, p := range m.Parameters {
		s, err := m.dev.SumSquares(p.Grad)
		if err != nil {
			return Totals{}, err
		}
		squares += s
	}
	totals.GradNorm = math.Sqrt(squares) * (1 / totals.Weight)
	return totals, nil
}

// microbatchPass runs one microbatch forward and backward.
func (t *pass) microbatchPass(sequence Sequence) (sum, weight float64) {
	ids, labels := t.ints(sequence.Tokens), t.ints(sequence.Labels)
	weights := t.floats(t.tokens)
	t.check(t.dev.WriteFloat32(weights, sequence.Weights))

	width := t.cfg.Width
	x := t.floats(t.tokens * width)
	t.check(t.dev.Embed(kernels.Embed{
		IDs: ids, Table: t.weight("embedding.weight"), Positions: t.weight("positions.weight"), X: x,
		Tokens: t.tokens, Width: width, Vocabulary: t.cfg.Vocabulary,
	}))
	x = t.dropout(x, "embedding.dropout")
	blocks := make([]block, t.cfg.Layers)
	for i := range blocks {
		blocks[i].forward(t, fmt.Sprintf("block%d", i), x)
		x = blocks[i].y
	}

	final := t.norm(x, "norm")
	table, grad := t.head()
	lse, scratch := t.floats(t.tokens), t.floats(t.dev.HeadWorkspace(t.tokens, width, t.cfg.Vocabulary))
	sum, weight, err := t.dev.HeadLoss(kernels.HeadLoss{
		X: final.y, Table: table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
		Tokens: t.tokens, Width: width, Vocabulary: t.cfg.Vocabulary,
	})
	t.check(err)
	dx := t.floats(t.tokens * width)
	t.check(t.dev.HeadLossBackward(kernels.HeadLossBackward{
		X: final.y, Table: table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
		DX: dx, DTable: grad, Seed: 1,
		Tokens: t.tokens, Width: width, Vocabulary: t.cfg.Vocabulary, Accumulate: t.later(),
	}))

	dx = t.normBackward(dx, final, "norm")
	for i := t.cfg.Layers - 1; i >= 0; i-- {
		dx = blocks[i].backward(t, dx)
	}
	dx = t.dropout(dx, "embedding.dropout")
	t.check(t.dev.EmbedBackward(kernels.EmbedBackward{
		IDs: ids, DX: dx, DTable: t.grad("embedding.weight"), DPositions: t.grad("positions.weight"),
		Tokens: t.tokens, Width: width, Vocabulary: t.cfg.Vocabulary,
		AccumulateTable: t.later(), AccumulatePositions: t.later(),
	}))
	return sum, weight
}

// head returns the table that the head uses, and its gradient.
func (m *Model) head() (table, grad kernels.Buffer) {
	if m.cfg.Untied {
		return m.weight("head.weight"), m.grad("head.weight")
	}
	return m.weight("embedding.weight"), m.headGrad
}

// AdamW are the parameters of an update.
type AdamW struct {
	LearningRate, Beta1, Beta2, Epsilon, WeightDecay float32
}

// Update makes an AdamW step with the gradient divided by the total weight, and clipped to
// maxNorm.
func (m *Model) Update(opt AdamW, totals Totals, maxNorm float64) error {
	m.updates++
	factor := 1 / totals.Weight
	if totals.GradNorm > maxNorm {
		factor *= maxNorm / totals.GradNorm
	}
	for _, p := range m.Parameters {
		decay := opt.WeightDecay
		if !p.decay {
			decay = 0
		}
		err := m.dev.AdamW(kernels.AdamW{
			Weight: p.Weight, Grad: p.Grad, M: p.M, V: p.V, Factor: float32(factor),
			LearningRate: opt.LearningRate, Beta1: opt.Beta1, Beta2: opt.Beta2, Epsilon: opt.Epsilon,
			WeightDecay: decay, Step: m.updates,
		})
		if err != nil {
			return fmt.Errorf("parity: %s: %w", p.Name, err)
		}
	}
	return nil
}

// ExactSum adds without rounding: 2,200 bits hold any sum of float64.
type ExactSum struct{ sum big.Float }

func (s *ExactSum) Add(v float64) {
	s.sum.SetPrec(2200)
	s.sum.Add(&s.sum, big.NewFloat(v))
}

func (s *ExactSum) Float64() float64 {
	v, _ := s.sum.Float64()
	return v
}
