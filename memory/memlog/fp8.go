package memlog

// FP8 is what the tensors of one role met in a step in low precision, on all ranks and in
// all microbatches.
type FP8 struct {
	Step int64
	// Role is what they are to the layers that quantize them, such as input.
	Role string
	// Tensors counts those of the role, Frozen those of them that met an infinity or NaN and
	// keep their scale for it.
	Tensors, Frozen int
	// Elements that were infinite or NaN, that were cut to the format's greatest value, and
	// that became zero and were not.
	NonFinite, Saturated, Underflowed uint64
	// The least and the greatest scale; both are 0 where there was none.
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
