//go:build !(amd64 || arm64) || purego

package float8

const missing = "float8: no assembly on this system"

func exact(float32) bool { return false }

func encodePiece([]byte, []float32, []uint32, *Format, float32) (Tally, bool) { panic(missing) }

func encodeBlocksMX(_, _ []byte, _ []float32, _ []uint32, _ int, _ *Format, _ bool) (Tally, int) {
	return Tally{}, 0
}

func encodeBlocksRows([]byte, []float32, []float32, []uint32, int, *Format, float32, bool) (Tally, int) {
	return Tally{}, 0
}

func encodeBlocksNV(_, _ []byte, _ []float32, _ []uint32, _ int, _, _ float32) (Tally, int) {
	return Tally{}, 0
}

func (s Set) decodeGroups([]float32, []byte, *Format, float32) { panic(missing) }

func (s Set) decodeBlocksMX([]float32, []byte, []byte, int, *Format) int { return 0 }

func (s Set) decodeBlocksNV([]float32, []byte, []float32) { panic(missing) }

func (s Set) columns(*columnStrip, *columnScales, *Matrix, *Rule, float32) bool { return false }

func streams([]byte, int) bool { return false }

func stream(_ []byte, _ int, _ []byte, _, _, _ int) { panic(missing) }

func fence() {}

func amax([]float32) uint32 { panic(missing) }

func transpose8(_ *float32, _ int, _ *float32, _, _ int) { panic(missing) }
