//go:build !(amd64 || arm64) || purego

package float8

func (p *blocks) tile(c []float32, stride, rows, cols, at int, first bool) {
	p.plainTile(c, stride, rows, cols, at, first)
}

func (s Set) packPanel(dst *float32, codes *byte, stride, blocks int, f *Format) {
	panic(missing)
}

func (s Set) packScaled(dst *float32, codes *byte, stride, blocks int, factors *float32) {
	panic(missing)
}

func widen(dst, src []byte) { panic(missing) }
