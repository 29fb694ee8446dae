package fit

import "github.com/weir-ml/weir/schedule"

// Static is the memory of a rank between steps, in bytes.
type Static struct {
	Parameters int64 `json:"parameters,omitempty"` // elements on the rank, before ZeRO divides them
	Weights    int64 `json:"weights"`
	Gradients  int64 `json:"gradients"`
	Optimizer  int64 `json:"optimizer"`
}

// Total returns all bytes.
func (s *Static) Total() int64 { return s.Weights + s.Gradients + s.Optimizer }

// perParameter returns the bytes of a parameter: its weight, its gradient and its optimizer state,
// which includes the float32 copies of weights and gradients for low precision.
func (s *Setup) perParameter() (weight, gradient, optimizer int64) {
	optimizer = 4 * map[Optimizer]int64{AdamW: 2, Momentum: 1}[s.Optimizer]
	switch weight, gradient = 4, 4; s.Precision {
	case BF16:
		weight, optimizer = 2, optimizer+4
	case FP16:
		weight, gradient, optimizer = 2, 2, optimizer+8
	}
	if s.Gradients > 0 {
		gradient = int64(s.Gradients)
	}
	return weight, gradient, optimizer
}

// static returns the static memory of a rank with the given stages. Both data and context
// parallelism replicate weights.
func (m *Model) static(s *Setup, stages []int, cut [][]Part) (total Static) {
	var plain, expert int64
	for _, stage := range stages {
		for _, p := range cut[stage] {
			for _, w := range m.held(p, cut[stage], s.Tensor) {
				if w.Split == ByExpert {
					expert += w.on(s)
				} else {
					plain += w.on(s)
				}
			}
		}
	}
	replicas := int64(s.Data * s.Context)
	total.add(s, plain, replicas)
	total.add(s, expert, max(replicas*int64(s.Tensor)/int64(s.Expert*s.ExpertTensor), 1))
	return total
}

// held returns the weights of a part of a stage. A tied head has a copy of the embedding's table
// if the embedding is on another stage.
func (m *Model) held(p Part, stage []Part, tensor int) []Weight {
	vocabulary := m.padded(tensor)
	list := m.Weights(p, vocabulary)
	if p.Kind == Head && m.Tied && stage[0].Kind != Embedding {
		list = append(list, Weight{"copy of the embedding", product(int64(vocabulary), int64(m.Hidden)), ByTensor})
	}
	return list
}

// on returns the number of a weight's elements on a rank.
func (w *Weight) on(s *Setup) int64 {
	parts := int64(1)
	switch w.Split {
	case ByTensor:
		parts = int64(s.Tensor)
	case ByExpert:
		parts = int64(s.Expert * s.ExpertTensor)
	}
	return (w.Elements + parts - 1) / parts
}

// add adds n parameters with the given number of replicas.
func (t *Static) add(s *Setup, n, replicas int64) {
	weight, gradient, optimizer := s.perParameter()
	share := func(bytes int64, from int) int64 {
		if s.Zero >= from {
			return (bytes + replicas - 1) / replicas
		}
		return bytes
	}
	t.Parameters += n
	t.Weights += share(n*weight, 3)
	t.Gradients += share(n*gradient, 2)
	t.Optimizer += share(n*optimizer, 1)
}

// stagesOf returns the model's stages on a rank, once for each copy of the model.
func stagesOf(p schedule.Placement, rank int) (stages []int) {
	for stage, home := range p.Rank {
		if home == rank {
			stages = append(stages, stage%p.Depth())
		}
	}
	return stages
}
