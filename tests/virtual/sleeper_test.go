package virtual_test

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages"
)

// number is a handle: one garbage-collected float64.
type number = *float64

type view = batchctx.Microbatch[number]

func num(v float64) number { return &v }

// prices are the durations of actions, by stage of the model, microbatch of the batch and kind.
// A full backward takes as long as I and W.
type prices struct {
	plan *schedule.Plan // only its placement and microbatches are used
	seed uint64
	same bool // for all microbatches
	most int
}

func (p *prices) of(stage, microbatch int, kind schedule.Kind) time.Duration {
	if kind == schedule.B {
		return p.of(stage, microbatch, schedule.I) + p.of(stage, microbatch, schedule.W)
	}
	if p.same {
		microbatch = 0
	}
	random := rand.New(rand.NewPCG(p.seed, uint64(schedule.NewAction(kind, stage, microbatch))))
	return time.Duration(1 + random.IntN(p.most))
}

// action returns the price of an action of the plan.
func (p *prices) action(a schedule.Action) time.Duration {
	return p.of(a.Stage()%p.plan.Placement.Depth(), p.plan.BatchIndex(a.Microbatch()), a.Kind())
}

// load counts the microbatches in flight on a rank: one for each stage that has run a forward and
// not yet the last part of its backward.
type load struct{ now, most int64 }

// sleeper is a stage that multiplies by a weight, and sleeps for its price.
type sleeper struct {
	stage       int // of the model
	first, last bool
	weight      float64
	grad        number
	prices      *prices
	load        *load
}

func (s *sleeper) Spec() stages.Spec {
	spec := stages.Spec{Name: "sleeper", Slots: []string{"x", "carry"}}
	if s.first {
		spec.Reads = []stages.Read{{Part: "x"}}
	} else {
		spec.Inputs = []stages.Port{{Name: "x"}}
	}
	if s.last {
		spec.Losses = []string{"loss"}
	} else {
		spec.Outputs = []stages.Port{{Name: "x"}}
	}
	return spec
}

func (s *sleeper) Params() []batchctx.Use[number] {
	return []batchctx.Use[number]{{Name: "w" + string(rune('a'+s.stage)), Grad: s.grad}}
}

func (s *sleeper) sleep(mb view, kind schedule.Kind) {
	time.Sleep(s.prices.of(s.stage, mb.Index(), kind))
}

func (s *sleeper) Forward(_ context.Context, mb view, in, out []number) error {
	s.load.now++
	s.load.most = max(s.load.most, s.load.now)
	s.sleep(mb, schedule.F)
	var x number
	if s.first {
		x = mb.Part(1)
	} else {
		x = in[0]
	}
	mb.Save(1, mb.Retain(x))
	y := forward(s.weight, *x)
	if s.last {
		mb.Loss(1, y, 1+float64(mb.Index()%3))
		return nil
	}
	out[0] = num(y)
	return nil
}

func (s *sleeper) BackwardInput(_ context.Context, mb view, gradOut, gradIn []number) error {
	s.sleep(mb, schedule.I)
	dw, err := s.back(mb, gradOut, gradIn)
	if err != nil {
		return err
	}
	mb.SaveFor(batchctx.ByWeight, 2, num(dw))
	return nil
}

func (s *sleeper) BackwardWeight(_ context.Context, mb view) error {
	s.sleep(mb, schedule.W)
	dw := mb.Take(2)
	return s.accumulate(mb, *dw)
}

func (s *sleeper) Backward(_ context.Context, mb view, gradOut, gradIn []number) error {
	s.sleep(mb, schedule.B)
	dw, err := s.back(mb, gradOut, gradIn)
	if err != nil {
		return err
	}
	return s.accumulate(mb, dw)
}

// back computes the gradient of the input and returns the gradient of the weight.
func (s *sleeper) back(mb view, gradOut, gradIn []number) (float64, error) {
	x := mb.Take(1)
	var dy float64
	if s.last {
		seed := mb.LossSeed(1)
		dy = float64(seed)
	} else {
		dy = *gradOut[0]
	}
	dx, dw := backward(s.weight, *x, dy)
	if gradIn != nil {
		gradIn[0] = num(dx)
	}
	return dw, nil
}

func (s *sleeper) accumulate(mb view, dw float64) error {
	s.load.now--
	g, write := mb.GradFirst(1)
	if write == batchctx.First {
		*g = 0
	}
	*g += dw
	return nil
}

// forward and backward are the arithmetic of a stage. None of the products is exact. The conversion
// prevents the compiler from fusing a product and a sum, which it would do only for some callers.
func forward(weight, x float64) float64 { return math.Sin(weight * x) }

func backward(weight, x, dy float64) (dx, dw float64) {
	d := dy * math.Cos(weight*x)
	return d * weight, float64(d * x)
}

// input returns the entry of a microbatch.
func input(microbatch int) float64 { return 1 / float64(3+microbatch) }

func weight(stage int) float64 { return 1 + 1/float64(3+stage) }

// sequential trains a model of depth stages on m microbatches in a plain loop, and returns the
// sum and the weight of each microbatch's loss, and the gradients.
func sequential(depth, m int) (sums, weights []float64, grads []float64) {
	grads = make([]float64, depth)
	for mb := range m {
		x := make([]float64, depth+1)
		x[0] = input(mb)
		for s := range depth {
			x[s+1] = forward(weight(s), x[s])
		}
		sums, weights = append(sums, x[depth]), append(weights, 1+float64(mb%3))
		dy := 1.0
		for s := depth - 1; s >= 0; s-- {
			var dw float64
			dy, dw = backward(weight(s), x[s], dy)
			grads[s] += dw
		}
	}
	return sums, weights, grads
}
