package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/kernels"
)

func randomCases() []Case {
	return []Case{
		newCase("dropout", false, dropout),
		newCase("dropout/keys", false, dropoutKeys),
		newCase("dropout/rate", false, dropoutRate),
		newCase("normal", false, normalDraws),
	}
}

var baseKey = kernels.Key{Seed: 7, Step: 3, Microbatch: 11, Op: kernels.OpKey("block.0.attention")}

// otherKeys returns a key for each field of Key, named for it: baseKey with that field changed.
func otherKeys() map[string]kernels.Key {
	keys := map[string]kernels.Key{"seed": baseKey, "step": baseKey, "microbatch": baseKey, "op": baseKey}
	for name, k := range keys {
		switch name {
		case "seed":
			k.Seed++
		case "step":
			k.Step++
		case "microbatch":
			k.Microbatch++
		case "op":
			k.Op = kernels.OpKey("block.1.attention")
		}
		keys[name] = k
	}
	return keys
}

// dropout compares the elements that are dropped with the draws that package kernels documents.
func dropout(l *lab) {
	for _, n := range lengths {
		for _, p := range []float32{0, 0.1, 0.5, 0.999} {
			title := fmt.Sprintf("Dropout of %d with p %v", n, p)
			in := l.normal(n, 1)
			want, bound := make([]float64, n), make([]float64, n)
			for i, v := range in {
				draw := baseKey.Draw(uint64(i / 4))[i%4]
				if float64(draw) >= math.Floor(float64(p)*0x1p32) {
					want[i] = float64(v) / (1 - float64(p))
				}
				bound[i] = 0x1p-22 * math.Abs(want[i])
			}
			x, y := l.put("x", in), l.result("y", n)
			l.do(title, func() error { return l.d.Dropout(y, x, p, baseKey) }, y)
			l.inBounds(title, l.read(y), want, bound)
			l.do(title, func() error { return l.d.Dropout(x, x, p, baseKey) }, x)
			l.exactly(title+" in place", l.read(x), l.read(y))
			l.drop()
		}
	}
	for _, p := range []float32{-0.1, 1, 2, float32(math.NaN())} {
		x, y := l.put("x", l.normal(8, 1)), l.result("y", 8)
		l.refuse(fmt.Sprintf("Dropout with p %v", p), kernels.ErrValue, func() error { return l.d.Dropout(y, x, p, baseKey) })
	}
}

// mask returns n ones after Dropout. It drops all buffers.
func (l *lab) mask(n int, p float32, key kernels.Key) []float32 {
	x, y := l.put("x", slices.Repeat([]float32{1}, n)), l.result("y", n)
	l.do("Dropout", func() error { return l.d.Dropout(y, x, p, key) }, y)
	defer l.drop()
	return l.read(y)
}

// dropoutKeys checks that the draws depend on each number of the key, and on nothing else.
func dropoutKeys(l *lab) {
	const n = 4096
	base := l.mask(n, 0.5, baseKey)
	for name, key := range otherKeys() {
		other := l.mask(n, 0.5, key)
		same := 0
		for i := range base {
			if base[i] == other[i] {
				same++
			}
		}
		if same < n/2-320 || same > n/2+320 { // ten standard deviations
			l.fault("with another %s %d of %d elements are dropped or kept alike, want about half", name, same, n)
		}
	}
	l.exactly("Dropout with the same key again", l.mask(n, 0.5, baseKey), base)
	l.exactly("Dropout of fewer elements with the same key", l.mask(37, 0.5, baseKey), base[:37])
}

// dropoutRate checks the number of elements that are kept, over many keys.
func dropoutRate(l *lab) {
	const n, keys = 1000, 64
	for _, p := range []float64{0.1, 0.5, 0.9} {
		kept := 0
		for step := range keys {
			key := baseKey
			key.Step = int64(step)
			for _, v := range l.mask(n, float32(p), key) {
				if v != 0 {
					kept++
				}
			}
		}
		want, deviation := (1-p)*n*keys, math.Sqrt(p*(1-p)*n*keys)
		if math.Abs(float64(kept)-want) > 5*deviation {
			l.fault("Dropout with p %v kept %d of %d elements, want %.0f ± %.0f", p, kept, n*keys, want, 5*deviation)
		}
	}
}

// normalDraws compares the results with the method that package kernels documents, and checks
// their first four moments.
func normalDraws(l *lab) {
	for _, n := range lengths {
		title := fmt.Sprintf("Normal of %d", n)
		const std = 0.02
		want := make([]float64, n)
		bound := make([]float64, n)
		for i := range want {
			u := baseKey.Draw(uint64(i / 4))
			pair := i % 4 / 2 * 2
			radius := math.Sqrt(-2 * math.Log((float64(u[pair])+0.5)/(1<<32)))
			sin, cos := math.Sincos(2 * math.Pi * (float64(u[pair+1]) + 0.5) / (1 << 32))
			want[i] = std * radius * []float64{cos, sin}[i%2]
			bound[i] = 0x1p-18 * std
		}
		x := l.result("x", n)
		l.do(title, func() error { return l.d.Normal(x, std, baseKey) }, x)
		l.inBounds(title, l.read(x), want, bound)
		l.drop()
	}
	const n = 1 << 16
	x := l.result("x", n)
	l.do("Normal", func() error { return l.d.Normal(x, 1, baseKey) }, x)
	var moments [5]float64
	for _, v := range l.read(x) {
		for k := 1; k <= 4; k++ {
			moments[k] += math.Pow(float64(v), float64(k)) / n
		}
	}
	for k, want := range []float64{0, 0, 1, 0, 3} {
		// The variances of the powers of a normal draw are 1, 2, 15 and 96.
		deviation := math.Sqrt([]float64{1, 1, 2, 15, 96}[k] / n)
		if k > 0 && math.Abs(moments[k]-want) > 5*deviation {
			l.fault("moment %d of Normal over %d draws is %.4f, want %v ± %.4f", k, n, moments[k], want, 5*deviation)
		}
	}
	first := l.read(x)
	for name, key := range otherKeys() {
		l.do("Normal", func() error { return l.d.Normal(x, 1, key) }, x)
		if equal(l.read(x), first) {
			l.fault("Normal with another %s draws the same", name)
		}
	}
	l.do("Normal", func() error { return l.d.Normal(x, 1, baseKey) }, x)
	l.exactly("Normal with the same key again", l.read(x), first)
	for _, std := range []float32{-1, float32(math.NaN()), float32(math.Inf(1))} {
		l.refuse(fmt.Sprintf("Normal with std %v", std), kernels.ErrValue, func() error { return l.d.Normal(x, std, baseKey) })
	}
}
