package lengths

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// ErrSize is wrapped by errors about the size of a microbatch.
var ErrSize = errors.New("lengths: invalid size")

// The upper bounds of the length of a sequence and of the number of tokens of a microbatch. The squares
// of a microbatch are less than 2^62.
const (
	MaxLength = 1 << 28
	MaxTokens = 1 << 31
)

// Size is the size of a microbatch: the number of its tokens, and the sum of the squares of the lengths
// of its sequences. The zero value is an empty microbatch.
type Size struct {
	Tokens  int64 `json:"tokens"`
	Squares int64 `json:"squares"`
}

// Of returns the size of a microbatch with sequences of the given lengths.
func Of[N int | int32 | int64](sequences ...N) (s Size) {
	for _, length := range sequences {
		s = s.Add(Size{int64(length), int64(length) * int64(length)})
	}
	return s
}

// Add returns the size of a microbatch with the sequences of both.
func (s Size) Add(other Size) Size {
	return Size{s.Tokens + other.Tokens, s.Squares + other.Squares}
}

// Sub returns the size of a microbatch without the sequences of another one.
func (s Size) Sub(other Size) Size {
	return Size{s.Tokens - other.Tokens, s.Squares - other.Squares}
}

// Validate reports a size that no microbatch can have. The error wraps ErrSize.
func (s Size) Validate() error {
	if s.Tokens < 1 || s.Tokens > MaxTokens {
		return diagnostic.Errorf(ErrSize, "it has %d tokens: use 1 to %d", s.Tokens, int64(MaxTokens))
	}
	if s.Squares < s.Tokens || s.Squares > s.Tokens*s.Tokens {
		return diagnostic.Errorf(ErrSize, "%d tokens cannot have squares of %d: the sum of the squares of the lengths is from %d, for sequences of one token, to %d, for one sequence", s.Tokens, s.Squares, s.Tokens, s.Tokens*s.Tokens)
	}
	return nil
}

// Max returns a size with the larger number of tokens and the larger squares of the two.
func Max(a, b Size) Size { return Size{max(a.Tokens, b.Tokens), max(a.Squares, b.Squares)} }

// Amount is a time or a number of bytes of a microbatch: Constant, plus Token for each token, plus
// Square for each unit of the sum of squared lengths. The unit of the amount is the caller's.
type Amount struct {
	Constant float64 `json:"constant,omitempty"`
	Token    float64 `json:"token,omitempty"`
	Square   float64 `json:"square,omitempty"`
}

// At returns the amount of a microbatch. It is the same on all processors, and exact for whole
// coefficients and a result of less than 2^53.
func (a Amount) At(s Size) float64 {
	// The conversions keep the compiler from fusing a multiplication with an addition, as it does for some processors.
	return a.Constant + float64(a.Token*float64(s.Tokens)) + float64(a.Square*float64(s.Squares))
}

// Whole is At, rounded to the nearest whole number.
func (a Amount) Whole(s Size) int64 { return int64(math.Round(a.At(s))) }

// Add returns the sum of two amounts.
func (a Amount) Add(b Amount) Amount {
	return Amount{a.Constant + b.Constant, a.Token + b.Token, a.Square + b.Square}
}

// Scale returns the amount times a factor.
func (a Amount) Scale(by float64) Amount {
	return Amount{a.Constant * by, a.Token * by, a.Square * by}
}

// IsConstant reports whether the amount is the same for all microbatches.
func (a Amount) IsConstant() bool { return a.Token == 0 && a.Square == 0 }

// Validate reports an amount with a coefficient that is negative or not a number.
func (a Amount) Validate() error {
	for _, v := range [...]float64{a.Constant, a.Token, a.Square} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return fmt.Errorf("lengths: the amount is %v + %v a token + %v a square: use finite numbers of at least 0", a.Constant, a.Token, a.Square)
		}
	}
	return nil
}
