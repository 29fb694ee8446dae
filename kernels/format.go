package kernels

import (
	"fmt"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
)

// Format is an element format.
type Format uint8

// The element formats. E4M3 is the OCP format without infinities (called fn elsewhere), with a
// greatest value of 448. E5M2 is the upper byte of a float16, with values up to 57,344. E2M1 has
// four bits and values up to 6.
const (
	E4M3 Format = iota
	E5M2
	E2M1
)

var formats = [...]*float8.Format{&float8.E4M3, &float8.E5M2, &float8.E2M1}

// String returns the format's name in lower case.
func (f Format) String() string {
	if int(f) < len(formats) {
		return formats[f].Name
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// Max returns the greatest finite value.
func (f Format) Max() float32 { return formats[f].Greatest() }

// Decode returns the value of a code, exactly.
func (f Format) Decode(code byte) float32 { return formats[f].Decode(code) }

// Encode returns the code nearest to x; ties go to the even code. Values above the greatest one,
// including infinity, saturate: this is the cast that hardware uses for training (satfinite;
// ml_dtypes keeps infinities). NaN stays NaN, except that it becomes the greatest value in E2M1,
// which has no NaN.
func (f Format) Encode(x float32) byte { return formats[f].Encode(x, float8.Saturate) }

// EncodeOverflowing is like Encode, except that values that round to more than the greatest one
// become infinity in E5M2 and NaN in E4M3.
func (f Format) EncodeOverflowing(x float32) byte { return formats[f].Encode(x, float8.Overflows) }

// EncodeStochastic returns one of the two codes around x, given a uniform random number. The
// probability of the upper code is proportional to the distance of x from the lower one. It
// saturates.
func (f Format) EncodeStochastic(x float32, random uint32) byte {
	return formats[f].Stochastic(x, random)
}
