package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-ml/weir/kernels"
)

// clock measures time: wall-clock time, or the processor time of the process. The second is for
// a machine that does other work too; with several threads it is their sum.
type clock func() time.Duration

var began = time.Now()

// wallTime returns the time since the program began.
func wallTime() time.Duration { return time.Since(began) }

// meter is a host that measures the time of its operations for a profile.
type meter struct {
	*kernels.Host
	now   clock
	total map[string]*share // nil if nothing is measured
}

// share is the part of a step that one kind of operation takes.
type share struct {
	Operation string        `json:"operation"`
	Calls     int           `json:"calls"`
	Time      time.Duration `json:"nanoseconds"`
	Share     float64       `json:"share"`
	Rate      float64       `json:"gflops,omitempty"` // 0 for operations other than products
	flops     float64
}

// profile ends the measurement and returns the shares of a step, the largest first; the
// remainder is the time of the runner, the books and the source.
func (m *meter) profile(step time.Duration) []share {
	rest := share{Operation: "all else", Time: step}
	var all []share
	for _, s := range m.total {
		rest.Time -= s.Time
		s.Rate = s.flops / float64(s.Time.Nanoseconds())
		all = append(all, *s)
	}
	m.total, all = nil, append(all, rest)
	for i := range all {
		all[i].Share = float64(all[i].Time) / float64(step)
	}
	slices.SortFunc(all, func(a, b share) int { return cmp.Compare(b.Time, a.Time) })
	return all
}

// timed runs an operation with the given number of floating-point operations in products.
func (m *meter) timed(name string, flops int, f func() error) error {
	if m.total == nil {
		return f()
	}
	begin := m.now()
	err := f()
	s := m.total[name]
	if s == nil {
		s = &share{Operation: name}
		m.total[name] = s
	}
	s.Time += m.now() - begin
	s.Calls++
	s.flops += float64(flops)
	return err
}

// stepFlops returns the floating-point operations of the necessary products of a step: two in
// the forward and four in the backward for each weight and token, and those of attention over
// half of the pairs of tokens.
func (c configuration) stepFlops() float64 {
	weights := 12*c.Width*c.Width*c.Layers + c.Width*c.Vocabulary
	pairs := c.Sequence * (c.Sequence + 1) / 2
	return batch * (6*float64(c.Sequence)*float64(weights) + 12*float64(pairs)*float64(c.Width*c.Layers))
}

func (m *meter) MatMul(op kernels.MatMul) error {
	name := "product forward"
	switch {
	case op.TransA:
		name = "product weight gradient"
	case op.TransB:
		name = "product input gradient"
	}
	return m.timed(name, 2*op.M*op.N*op.K, func() error { return m.Host.MatMul(op) })
}

func (m *meter) CausalAttention(op kernels.CausalAttention) error {
	flops := 2 * op.Tokens * (op.Tokens + 1) * op.Heads * op.HeadDim
	return m.timed("attention", flops, func() error { return m.Host.CausalAttention(op) })
}

func (m *meter) CausalAttentionBackward(op kernels.CausalAttentionBackward) error {
	flops := 5 * op.Tokens * (op.Tokens + 1) * op.Heads * op.HeadDim
	return m.timed("attention backward", flops, func() error { return m.Host.CausalAttentionBackward(op) })
}

func (m *meter) HeadLoss(op kernels.HeadLoss) (sum, weight float64, err error) {
	err = m.timed("head", 2*op.Tokens*op.Width*op.Vocabulary, func() (err error) {
		sum, weight, err = m.Host.HeadLoss(op)
		return err
	})
	return sum, weight, err
}

func (m *meter) HeadLossBackward(op kernels.HeadLossBackward) error {
	logits := op.Tokens * op.Vocabulary
	flops := 2 * op.Width * (2*logits + max(0, logits-op.Logits.N)) // two gradients, and the logits that were not kept
	return m.timed("head backward", flops, func() error { return m.Host.HeadLossBackward(op) })
}

func (m *meter) LayerNorm(op kernels.LayerNorm) error {
	return m.timed("norm", 0, func() error { return m.Host.LayerNorm(op) })
}

func (m *meter) LayerNormBackward(op kernels.LayerNormBackward) error {
	return m.timed("norm backward", 0, func() error { return m.Host.LayerNormBackward(op) })
}

func (m *meter) GELU(y, x kernels.Buffer) error {
	return m.timed("GELU", 0, func() error { return m.Host.GELU(y, x) })
}

func (m *meter) GELUBackward(dx, dy, x kernels.Buffer) error {
	return m.timed("GELU backward", 0, func() error { return m.Host.GELUBackward(dx, dy, x) })
}

func (m *meter) Embed(op kernels.Embed) error {
	return m.timed("embedding", 0, func() error { return m.Host.Embed(op) })
}

func (m *meter) EmbedBackward(op kernels.EmbedBackward) error {
	return m.timed("embedding backward", 0, func() error { return m.Host.EmbedBackward(op) })
}

func (m *meter) AddRow(x, b kernels.Buffer, rows, cols int) error {
	return m.timed("bias", 0, func() error { return m.Host.AddRow(x, b, rows, cols) })
}

func (m *meter) SumRows(dst, x kernels.Buffer, rows, cols int, accumulate bool) error {
	return m.timed("bias backward", 0, func() error { return m.Host.SumRows(dst, x, rows, cols, accumulate) })
}

func (m *meter) Add(dst, src kernels.Buffer) error {
	return m.timed("add", 0, func() error { return m.Host.Add(dst, src) })
}

func (m *meter) Zero(x kernels.Buffer) error {
	return m.timed("zero", 0, func() error { return m.Host.Zero(x) })
}

func (m *meter) SumSquares(x kernels.Buffer) (sum float64, err error) {
	err = m.timed("gradient norm", 0, func() (err error) {
		sum, err = m.Host.SumSquares(x)
		return err
	})
	return sum, err
}

func (m *meter) AdamW(op kernels.AdamW) error {
	return m.timed("AdamW", 0, func() error { return m.Host.AdamW(op) })
}
