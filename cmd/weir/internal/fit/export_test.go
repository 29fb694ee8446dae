package fit

import "github.com/weir-ml/weir/schedule/simulate"

// CutLayers returns the cut that the search makes.
func CutLayers(parts []simulate.StageCosts, layers, stages int) []int {
	return cutLayers(parts, layers, stages)
}

// Composed returns the layers of the stages of a cut, and the values of their formulas.
func Composed(m *Model, s Setup, cut []int) ([][]Layer, Sizes) {
	s = s.withDefaults()
	var stages [][]Layer
	for _, parts := range m.stages(cut, &Setup{}) {
		var layers []Layer
		for _, p := range parts {
			layers = append(layers, s.layer(m, p, Recompute{}))
		}
		stages = append(stages, layers)
	}
	return stages, m.sizes(&s)
}

// Stages returns the costs of the stages of a cut for sequences of one length.
func (s Search) Stages(cut []int) ([]simulate.StageCosts, error) {
	t := trial{setup: s.Setup.withDefaults(), stages: len(cut), cut: cut}
	t.setup.Microbatch, s.Ranks = 1, 1
	err := s.price(&t)
	return t.costs.Stages, err
}
