package ptx

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// operation computes a register from up to three others. The unused upper bits of a register
// are zero; a predicate is 0 or 1.
type operation func(a, b, c uint64) uint64

func f32(x uint64) float32 { return math.Float32frombits(uint32(x)) }
func f64(x uint64) float64 { return math.Float64frombits(x) }

// from32 returns the register of a single-precision result; hardware has only one NaN.
func from32(x float32) uint64 {
	if x != x {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(x))
}

func from64(x float64) uint64 { return math.Float64bits(x) }

// fma32 is a·b + c rounded once. The product is exact in float64. The sum is rounded to odd,
// so that rounding it to float32 gives the correctly rounded result.
func fma32(a, b, c float32) float32 {
	p, w := float64(float64(a)*float64(b)), float64(c)
	s := p + w
	t := s - p
	e := (p - (s - t)) + (w - t)
	if e == 0 || e-e != 0 {
		return float32(s)
	}
	if u := math.Float64bits(s); u&1 == 0 {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}

// ones returns a mask of the given number of lowest bits, from 1 to 64.
func ones(bits int) uint64 { return 1<<(bits-1)<<1 - 1 }

// extend sign-extends a register of a width in bits.
func extend(x uint64, width int) int64 { return int64(x<<(64-width)) >> (64 - width) }

// arithmetic returns the operation of an opcode and the number of its operands.
func arithmetic(op []string) (f operation, operands int, err error) {
	if len(op) < 2 {
		return nil, 0, fmt.Errorf("%w: %s", ErrUnsupported, op[0])
	}
	t := op[len(op)-1]
	has := func(part string) bool { return slices.Contains(op[1:len(op)-1], part) }
	unknown := fmt.Errorf("%w: %s", ErrUnsupported, strings.Join(op, "."))
	if has("approx") || has("ftz") || has("sat") || has("rz") || has("rm") || has("rp") {
		return nil, 0, fmt.Errorf("%w: approximation, flushing to zero, or a rounding other than to nearest", ErrUnsupported)
	}
	switch op[0] {
	case "cvta": // generic addresses equal global ones; other spaces have none
		if !has("global") {
			return nil, 0, unknown
		}
		return func(a, _, _ uint64) uint64 { return a }, 1, nil
	case "cvt":
		if strings.Join(op, ".") == "cvt.rn.bf16x2.f32" {
			return func(a, b, _ uint64) uint64 { return bfloat16(a)<<16 | bfloat16(b) }, 2, nil
		}
		f, err := convert(op)
		return f, 1, err
	case "setp":
		if len(op) != 3 {
			return nil, 0, unknown
		}
		f, err := compare(op[1], t)
		return f, 2, err
	case "selp":
		return func(a, b, c uint64) uint64 {
			if c != 0 {
				return a
			}
			return b
		}, 3, nil
	}
	switch {
	case t == "f32":
		o := float32s[op[0]]
		f, operands = o.f, o.operands
	case t == "f64":
		o := float64s[op[0]]
		f, operands = o.f, o.operands
	case t == "pred":
		f, operands = integers(op[0], 1, false, has)
	case widths[t] > 1:
		f, operands = integers(op[0], 8*widths[t], t[0] == 's', has)
	}
	if f == nil {
		return nil, 0, unknown
	}
	return f, operands, nil
}

// opcode is an operation with the number of its operands.
type opcode struct {
	f        operation
	operands int
}

var mov = opcode{func(a, _, _ uint64) uint64 { return a }, 1}

var float32s = map[string]opcode{
	"mov":  mov,
	"add":  {func(a, b, _ uint64) uint64 { return from32(f32(a) + f32(b)) }, 2},
	"sub":  {func(a, b, _ uint64) uint64 { return from32(f32(a) - f32(b)) }, 2},
	"mul":  {func(a, b, _ uint64) uint64 { return from32(f32(a) * f32(b)) }, 2},
	"fma":  {func(a, b, c uint64) uint64 { return from32(fma32(f32(a), f32(b), f32(c))) }, 3},
	"div":  {func(a, b, _ uint64) uint64 { return from32(f32(a) / f32(b)) }, 2},
	"rcp":  {func(a, _, _ uint64) uint64 { return from32(1 / f32(a)) }, 1},
	"sqrt": {func(a, _, _ uint64) uint64 { return from32(float32(math.Sqrt(float64(f32(a))))) }, 1},
	"neg":  {func(a, _, _ uint64) uint64 { return a ^ 1<<31 }, 1},
	"abs":  {func(a, _, _ uint64) uint64 { return a &^ (1 << 31) }, 1},
}

var float64s = map[string]opcode{
	"mov":  mov,
	"add":  {func(a, b, _ uint64) uint64 { return from64(f64(a) + f64(b)) }, 2},
	"sub":  {func(a, b, _ uint64) uint64 { return from64(f64(a) - f64(b)) }, 2},
	"mul":  {func(a, b, _ uint64) uint64 { return from64(f64(a) * f64(b)) }, 2},
	"div":  {func(a, b, _ uint64) uint64 { return from64(f64(a) / f64(b)) }, 2},
	"rcp":  {func(a, _, _ uint64) uint64 { return from64(1 / f64(a)) }, 1},
	"sqrt": {func(a, _, _ uint64) uint64 { return from64(math.Sqrt(f64(a))) }, 1},
	"neg":  {func(a, _, _ uint64) uint64 { return a ^ 1<<63 }, 1},
}

// integers returns an integer operation on registers of a width in bits, and the number of its
// operands, or nil if it is not supported. A width of one bit is for predicates.
func integers(name string, width int, signed bool, has func(string) bool) (operation, int) {
	mask := ones(width)
	value := func(x uint64) int64 { return extend(x, width) }
	less := func(a, b uint64) bool { return a < b }
	shr := func(a, b, _ uint64) uint64 { return a >> min(b, 64) }
	if signed {
		less = func(a, b uint64) bool { return value(a) < value(b) }
		shr = func(a, b, _ uint64) uint64 { return uint64(value(a)>>min(b, 63)) & mask }
	}
	choose := func(first bool, a, b uint64) uint64 {
		if first {
			return a
		}
		return b
	}
	switch name {
	case "mul", "mad":
		product := func(a, b uint64) uint64 { return a * b & mask }
		out := mask
		switch {
		case has("hi"):
			return nil, 0
		case has("wide"):
			out = ones(2 * width)
			product = func(a, b uint64) uint64 { return a * b & out }
			if signed {
				product = func(a, b uint64) uint64 { return uint64(value(a)*value(b)) & out }
			}
		}
		if name == "mul" {
			return func(a, b, _ uint64) uint64 { return product(a, b) }, 2
		}
		return func(a, b, c uint64) uint64 { return (product(a, b) + c) & out }, 3
	case "bfe", "div", "rem":
		if signed {
			return nil, 0
		}
	}
	op := map[string]opcode{
		"mov": mov,
		"add": {func(a, b, _ uint64) uint64 { return (a + b) & mask }, 2},
		"sub": {func(a, b, _ uint64) uint64 { return (a - b) & mask }, 2},
		"and": {func(a, b, _ uint64) uint64 { return a & b }, 2},
		"or":  {func(a, b, _ uint64) uint64 { return a | b }, 2},
		"xor": {func(a, b, _ uint64) uint64 { return a ^ b }, 2},
		"not": {func(a, _, _ uint64) uint64 { return ^a & mask }, 1},
		"neg": {func(a, _, _ uint64) uint64 { return -a & mask }, 1},
		"shl": {func(a, b, _ uint64) uint64 { return a << min(b, 64) & mask }, 2},
		"shr": {shr, 2},
		"min": {func(a, b, _ uint64) uint64 { return choose(less(a, b), a, b) }, 2},
		"max": {func(a, b, _ uint64) uint64 { return choose(less(a, b), b, a) }, 2},
		"bfe": {func(a, b, c uint64) uint64 { return a >> min(b&255, 64) & (1<<min(c&255, 64) - 1) }, 3},
		"div": {func(a, b, _ uint64) uint64 { // by zero it is all ones, as on hardware
			if b == 0 {
				return mask
			}
			return a / b
		}, 2},
		"rem": {func(a, b, _ uint64) uint64 {
			if b == 0 {
				return mask
			}
			return a % b
		}, 2},
	}[name]
	return op.f, op.operands
}

// compare returns a comparison that sets a predicate.
func compare(how, t string) (operation, error) {
	truth := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	if t == "f32" || t == "f64" {
		ordered, unordered := strings.CutSuffix(how, "u")
		test, ok := map[string]func(x, y float64) bool{
			"eq": func(x, y float64) bool { return x == y }, "lt": func(x, y float64) bool { return x < y },
			"le": func(x, y float64) bool { return x <= y }, "gt": func(x, y float64) bool { return x > y },
			"ge": func(x, y float64) bool { return x >= y }, "ne": func(x, y float64) bool { return x < y || x > y },
		}[ordered]
		if !ok {
			return nil, fmt.Errorf("%w: comparison %q", ErrUnsupported, how)
		}
		wide := f64
		if t == "f32" {
			wide = func(x uint64) float64 { return float64(f32(x)) }
		}
		return func(a, b, _ uint64) uint64 {
			x, y := wide(a), wide(b)
			return truth(test(x, y) || unordered && (x != x || y != y))
		}, nil
	}
	width := 8 * widths[t]
	if width == 0 {
		return nil, fmt.Errorf("%w: type %q", ErrUnsupported, t)
	}
	order := func(a, b uint64) int { return int(truth(a > b)) - int(truth(a < b)) }
	if t[0] == 's' {
		order = func(a, b uint64) int {
			return int(truth(extend(a, width) > extend(b, width))) - int(truth(extend(a, width) < extend(b, width)))
		}
	}
	want, ok := map[string][3]bool{ // for less, equal, greater
		"lt": {true, false, false}, "lo": {true, false, false}, "le": {true, true, false}, "ls": {true, true, false},
		"gt": {false, false, true}, "hi": {false, false, true}, "ge": {false, true, true}, "hs": {false, true, true},
		"eq": {false, true, false}, "ne": {true, false, true},
	}[how]
	if !ok {
		return nil, fmt.Errorf("%w: comparison %q", ErrUnsupported, how)
	}
	return func(a, b, _ uint64) uint64 { return truth(want[order(a, b)+1]) }, nil
}

// convert returns a conversion, cvt[.rounding].to.from.
func convert(op []string) (operation, error) {
	unknown := fmt.Errorf("%w: %s", ErrUnsupported, strings.Join(op, "."))
	if len(op) < 3 || len(op) > 4 {
		return nil, unknown
	}
	to, from := op[len(op)-2], op[len(op)-1]
	toWidth, fromWidth := 8*widths[to], 8*widths[from]
	if toWidth == 0 || fromWidth == 0 {
		return nil, unknown
	}
	mask := ones(toWidth)
	switch conversion := strings.Join(op[1:], "."); {
	case conversion == "f64.f32":
		return func(a, _, _ uint64) uint64 { return from64(float64(f32(a))) }, nil
	case conversion == "rn.f32.f64":
		return func(a, _, _ uint64) uint64 { return from32(float32(f64(a))) }, nil
	case conversion == "rzi.s32.f64":
		return func(a, _, _ uint64) uint64 { // saturating; NaN is 0
			x := f64(a)
			if x != x {
				return 0
			}
			return uint64(uint32(int32(max(math.MinInt32, min(math.MaxInt32, x)))))
		}, nil
	case from[0] == 'f' || to[0] == 'f' && fromWidth > 32:
		return nil, unknown
	}
	number := func(a uint64) int64 { return int64(a) }
	if from[0] == 's' {
		number = func(a uint64) int64 { return extend(a, fromWidth) }
	}
	switch to {
	case "f32":
		return func(a, _, _ uint64) uint64 { return from32(float32(number(a))) }, nil
	case "f64":
		return func(a, _, _ uint64) uint64 { return from64(float64(number(a))) }, nil
	}
	source := ones(fromWidth)
	return func(a, _, _ uint64) uint64 { return uint64(number(a&source)) & mask }, nil
}
