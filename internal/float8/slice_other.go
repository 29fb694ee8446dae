//go:build !amd64 || purego

package float8

func (s Set) encodeWhole(dst *byte, src *float32, n int, scale float32, r *rounding, c *counts) {
	panic("float8: no assembly on this system")
}

func (s Set) decode(dst *float32, src *byte, n int, scale float32, e4m3 bool) {
	panic("float8: no assembly on this system")
}

func (s Set) amax(src *float32, n int) uint32 { panic("float8: no assembly on this system") }
