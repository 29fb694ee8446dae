package pickle

// The pickle opcodes that are supported: those of PyTorch's memory snapshot viewer
// (torch/utils/viz/MemoryViz.js).
const (
	OpProto        = 0x80
	OpMark         = '('
	OpStop         = '.'
	OpNone         = 'N'
	OpTrue         = 0x88
	OpFalse        = 0x89
	OpInt4         = 'J' // BININT, four bytes, signed
	OpInt1         = 'K' // BININT1
	OpInt2         = 'M' // BININT2
	OpLong1        = 0x8a
	OpFloat        = 'G' // BINFLOAT, eight bytes, big endian
	OpUnicode      = 'X' // BINUNICODE, four bytes of length
	OpShortUnicode = 0x8c
	OpEmptyList    = ']'
	OpAppend       = 'a'
	OpAppends      = 'e'
	OpList         = 'l'
	OpEmptyDict    = '}'
	OpSetItem      = 's'
	OpSetItems     = 'u'
	OpDict         = 'd'
	OpEmptyTuple   = ')'
	OpTuple        = 't'
	OpTuple1       = 0x85
	OpTuple2       = 0x86
	OpTuple3       = 0x87
	OpPut          = 'q' // BINPUT
	OpLongPut      = 'r' // LONG_BINPUT
	OpGet          = 'h' // BINGET
	OpLongGet      = 'j' // LONG_BINGET
	OpMemoize      = 0x94
	OpFrame        = 0x95
)

// calling holds the opcodes that name or call code.
var calling = map[byte]string{
	'c': "GLOBAL", 0x93: "STACK_GLOBAL", 'R': "REDUCE", 'b': "BUILD", 'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
	0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4", 'P': "PERSID", 'Q': "BINPERSID", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}
