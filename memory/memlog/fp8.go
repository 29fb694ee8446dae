package memlog

// FP8 has the statistics of the tensors of one role in a step in low precision, on all ranks
// and in all microbatches.
type FP8 struct {
	Step int64
	// Role is their role in the layers that quantize them, such as input.
	Role string
	// Tensors counts the tensors of the role, and Frozen those that had an infinity or NaN and
	// therefore keep their scale.
	Tensors, Frozen int
	// Elements that were infinite or NaN, that saturated to the format's greatest value, and
	// nonzero ones that became zero.
	NonFinite, Saturated, Underflowed uint64
	// The least and the greatest scale, or 0 if there was none.
	LeastScale, GreatestScale float64
}

// FP8 writes one line. A trainer in low precision writes one for each role when a step has
// ended.
func (l *Log) FP8(f *FP8) { l.object("fp8", fp8Fields(f)) }

func fp8Fields(f *FP8) object {
	return object{
		{key: "step", to: &f.Step},
		{key: "role", to: &f.Role},
		{key: "tensors", to: &f.Tensors},
		{key: "frozen", to: &f.Frozen},
		{key: "non_finite", to: &f.NonFinite},
		{key: "saturated", to: &f.Saturated},
		{key: "underflowed", to: &f.Underflowed},
		{key: "least_scale", to: &f.LeastScale},
		{key: "greatest_scale", to: &f.GreatestScale},
	}
}
