package fit

import "slices"

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
	case BF16, FP8:
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
// parallelism replicate weights. A tied head has a copy of the embedding's table if the embedding
// is on another stage. With FP8 there are two copies of a product's weights, which ZeRO does not
// divide. The weights that ZeRO 3 gathers are counted for s.Gathered stages.
func (m *Model) static(s *Setup, stages [][]Module) (total Static) {
	var plain, expert int64
	vocabulary := m.padded(s.Tensor)
	gathered := make([]int64, len(stages)) // elements of each stage
	for i, parts := range stages {
		for _, p := range parts {
			list := m.Weights(p, vocabulary)
			if p.Kind == Head && m.Tied && parts[0].Kind != Embedding {
				list = append(list, Weight{Name: "copy of the embedding", Elements: product(int64(vocabulary), int64(m.Hidden)), Split: ByTensor})
			}
			for _, w := range list {
				ranks, sum := int64(1), &plain
				switch w.Split {
				case ByTensor:
					ranks = int64(s.Tensor)
				case ByExpert:
					ranks, sum = int64(s.Expert*s.ExpertTensor), &expert
				}
				n := (w.Elements + ranks - 1) / ranks
				gathered[i] += n
				if *sum += n; s.Precision == FP8 && w.Product && p.Kind != Embedding && p.Kind != Head {
					total.Weights += 2 * n
				}
			}
		}
	}
	replicas := int64(s.Data * s.Context)
	total.add(s, plain, replicas)
	total.add(s, expert, max(replicas*int64(s.Tensor)/int64(s.Expert*s.ExpertTensor), 1))
	if s.Zero == 3 { // the largest stages may be gathered at the same time
		weight, _, _ := s.perParameter()
		slices.Sort(gathered)
		for _, n := range gathered[max(len(gathered)-s.Gathered, 0):] {
			total.Weights += n * weight
		}
	}
	return total
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
