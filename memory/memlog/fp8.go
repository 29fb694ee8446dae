package memlog

// FP8 holds the statistics of the tensors with one role in a low-precision step, over all ranks and
// microbatches.
type FP8 struct {
	Step int64
	// Role is the tensors' role in the layers that quantize them, such as input.
	Role string
	// Tensors counts the tensors with this role, and Frozen those that contained an infinity or NaN and
	// therefore keep their scale.
	Tensors, Frozen int
	// The numbers of elements that were infinite or NaN, of those that saturated to the format's greatest
	// value, and of nonzero ones that became zero.
	NonFinite, Saturated, Underflowed uint64
	// The least and the greatest scale, or 0 if there was none.
	LeastScale, GreatestScale float64
}

// FP8 writes f as one line. A low-precision trainer writes a line for each role at the end of a step.
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
