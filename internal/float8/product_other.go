//go:build !amd64 || purego

package float8

func (p *blocks) tile(c []float32, stride, rows, cols, at int, first bool) {
	p.plainTile(c, stride, rows, cols, at, first)
}

func (s Set) packPanel(dst *float32, codes *byte, stride, blocks int, f *Format) {
	panic("float8: no assembly on this system")
}
