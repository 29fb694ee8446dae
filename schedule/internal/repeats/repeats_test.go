package repeats_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// operation is an operation of a body on a set. Its microbatch moves with the repeats, or, if fixed
// is set, only with the repeats of the outer body.
type operation struct {
	what, set int
	mb        int64
	fixed     bool
}

func (o operation) do(s *repeats.Sets, sign int8, around, shift int64) bool {
	mb := o.mb + around + shift
	if s.Sign = sign; o.fixed {
		s.Sign, mb = 0, o.mb+around
	}
	switch o.what {
	case 0:
		return s.Has(o.set, mb)
	case 1:
		return s.Add(o.set, mb)
	}
	return s.Remove(o.set, mb)
}

// TestSkippingChangesNothing repeats random bodies, with and without skipping repeats and nested
// repeats. The results of the operations must be the same in every repeat, and the sets must be
// equal at the end.
func TestSkippingChangesNothing(t *testing.T) {
	skipped := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		const sets = 2
		width := rapid.Int64Range(1, 12).Draw(t, "width")
		draw := func(name string) (body []operation) {
			for range rapid.IntRange(1, 6).Draw(t, name) {
				body = append(body, operation{rapid.IntRange(0, 2).Draw(t, "what"), rapid.IntRange(0, sets-1).Draw(t, "set"),
					rapid.Int64Range(-width, width).Draw(t, "mb"), rapid.IntRange(0, 7).Draw(t, "fixed") == 0})
			}
			return body
		}
		outer, inner := draw("outer"), draw("inner")
		stride, innerStride := rapid.Int64Range(-6, 6).Draw(t, "stride"), rapid.Int64Range(-2, 2).Draw(t, "inner stride")
		innerRepeats := rapid.Int64Range(1, 9).Draw(t, "inner repeats")
		repeatsOfAll := rapid.Int64Range(1, 60).Draw(t, "repeats")

		all, few := repeats.NewSets(sets, 1<<20), repeats.NewSets(sets, 1<<20)
		for range rapid.IntRange(0, 8).Draw(t, "beforehand") {
			set, mb := rapid.IntRange(0, sets-1).Draw(t, "set"), rapid.Int64Range(-40, 200).Draw(t, "mb")
			all.Add(set, mb)
			few.Add(set, mb)
		}
		sign := func(n int64) int8 { return int8(max(-1, min(1, n))) }

		results := map[[3]int64][]bool{} // by repeat and inner repeat: the results of the operations
		for r := range repeatsOfAll {
			for _, o := range outer {
				results[[3]int64{r, -1}] = append(results[[3]int64{r, -1}], o.do(all, 0, 0, r*stride))
			}
			for k := range innerRepeats {
				for _, o := range inner {
					results[[3]int64{r, k}] = append(results[[3]int64{r, k}], o.do(all, 0, r*stride, k*innerStride))
				}
			}
		}

		for r := int64(0); r < repeatsOfAll; r++ {
			few.Begin(sign(stride))
			var got []bool
			for _, o := range outer {
				got = append(got, o.do(few, sign(stride), 0, r*stride))
			}
			require.Equal(t, results[[3]int64{r, -1}], got)
			for k := int64(0); k < innerRepeats; k++ {
				few.Begin(sign(innerStride))
				got = nil
				for _, o := range inner {
					got = append(got, o.do(few, sign(innerStride), r*stride, k*innerStride))
				}
				require.Equal(t, results[[3]int64{r, k}], got)
				n := few.End(max(innerStride, -innerStride), innerRepeats-1-k)
				k += n
				skipped += n
			}
			n := few.End(max(stride, -stride), repeatsOfAll-1-r)
			r += n
			skipped += n
		}
		for set := range sets {
			require.Equal(t, append(repeats.Runs{}, all.Get(set)...), append(repeats.Runs{}, few.Get(set)...))
		}
	})
	require.NotZero(t, skipped)
}
