package pickle

// The opcodes of pickle that are read, which are those that the viewer of memory snapshots
// knows (torch/utils/viz/MemoryViz.js), and those that are refused by name.
const (
	OpProto          = 0x80
	OpMark           = '('
	OpStop           = '.'
	OpNone           = 'N'
	OpTrue           = 0x88
	OpFalse          = 0x89
	OpInt4           = 'J' // BININT, four bytes, signed
	OpInt1           = 'K' // BININT1
	OpInt2           = 'M' // BININT2
	OpLong1          = 0x8a
	OpFloat          = 'G' // BINFLOAT, eight bytes, big endian
	OpUnicode        = 'X' // BINUNICODE, four bytes of length
	OpShortUnicode   = 0x8c
	OpEmptyList      = ']'
	OpAppend         = 'a'
	OpAppends        = 'e'
	OpList           = 'l'
	OpEmptyDict      = '}'
	OpSetItem        = 's'
	OpSetItems       = 'u'
	OpDict           = 'd'
	OpEmptyTuple     = ')'
	OpTuple          = 't'
	OpTuple1         = 0x85
	OpTuple2         = 0x86
	OpTuple3         = 0x87
	OpPut            = 'q' // BINPUT
	OpLongPut        = 'r' // LONG_BINPUT
	OpGet            = 'h' // BINGET
	OpLongGet        = 'j' // LONG_BINGET
	OpMemoize        = 0x94
	OpFrame          = 0x95
	OpGlobal         = 'c'
	OpStackGlobal    = 0x93
	OpReduce         = 'R'
	OpBuild          = 'b'
	OpInst           = 'i'
	OpObj            = 'o'
	OpNewObj         = 0x81
	OpNewObjEx       = 0x92
	OpExt1           = 0x82
	OpExt2           = 0x83
	OpExt4           = 0x84
	OpPersID         = 'P'
	OpBinPersID      = 'Q'
	OpNextBuffer     = 0x97
	OpReadonlyBuffer = 0x98
)

// calling has the opcodes with which a pickle names or calls code.
var calling = map[byte]string{
	OpGlobal: "GLOBAL", OpStackGlobal: "STACK_GLOBAL", OpReduce: "REDUCE", OpBuild: "BUILD", OpInst: "INST",
	OpObj: "OBJ", OpNewObj: "NEWOBJ", OpNewObjEx: "NEWOBJ_EX", OpExt1: "EXT1", OpExt2: "EXT2", OpExt4: "EXT4",
	OpPersID: "PERSID", OpBinPersID: "BINPERSID", OpNextBuffer: "NEXT_BUFFER", OpReadonlyBuffer: "READONLY_BUFFER",
}
