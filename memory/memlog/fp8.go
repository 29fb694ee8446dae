package memlog

import "github.com/rs/zerolog"

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

// FP8 writes one line. Whoever trains in low precision writes one for each role when a
// step has ended.
func (l *Log) FP8(f *FP8) {
	l.json.Log().Int("schema", schema).Object("fp8", f).Send()
}

// MarshalZerologObject implements zerolog.LogObjectMarshaler.
func (f *FP8) MarshalZerologObject(e *zerolog.Event) {
	e.Int64("step", f.Step).
		Str("role", f.Role).
		Int("tensors", f.Tensors).
		Int("frozen", f.Frozen).
		Uint64("non_finite", f.NonFinite).
		Uint64("saturated", f.Saturated).
		Uint64("underflowed", f.Underflowed).
		Float64("least_scale", f.LeastScale).
		Float64("greatest_scale", f.GreatestScale)
}

// parseFP8 reads a line of Log.FP8.
func parseFP8(all []member) (r Record, err error) {
	inner, column, err := inside(all, "fp8", &r)
	if err != nil {
		return r, err
	}
	f := &FP8{}
	r.FP8 = f
	err = fill(column, inner, "a role in FP8", []field{
		{key: "step", to: &f.Step},
		{key: "role", to: &f.Role},
		{key: "tensors", to: &f.Tensors},
		{key: "frozen", to: &f.Frozen},
		{key: "non_finite", to: &f.NonFinite},
		{key: "saturated", to: &f.Saturated},
		{key: "underflowed", to: &f.Underflowed},
		{key: "least_scale", to: &f.LeastScale},
		{key: "greatest_scale", to: &f.GreatestScale},
	})
	return r, err
}
