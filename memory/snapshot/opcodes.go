package snapshot

// The opcodes of pickle that a snapshot may hold. They are those that the viewer's own
// unpickler knows (torch/utils/viz/MemoryViz.js).
const (
	opProto          = 0x80
	opMark           = '('
	opStop           = '.'
	opNone           = 'N'
	opTrue           = 0x88
	opFalse          = 0x89
	opInt4           = 'J' // BININT, four bytes, signed
	opInt1           = 'K' // BININT1
	opInt2           = 'M' // BININT2
	opLong1          = 0x8a
	opFloat          = 'G' // BINFLOAT, eight bytes, big endian
	opUnicode        = 'X' // BINUNICODE, four bytes of length
	opShortUnicode   = 0x8c
	opEmptyList      = ']'
	opAppend         = 'a'
	opAppends        = 'e'
	opList           = 'l'
	opEmptyDict      = '}'
	opSetItem        = 's'
	opSetItems       = 'u'
	opDict           = 'd'
	opEmptyTuple     = ')'
	opTuple          = 't'
	opTuple1         = 0x85
	opTuple2         = 0x86
	opTuple3         = 0x87
	opPut            = 'q' // BINPUT
	opLongPut        = 'r' // LONG_BINPUT
	opGet            = 'h' // BINGET
	opLongGet        = 'j' // LONG_BINGET
	opMemoize        = 0x94
	opFrame          = 0x95
	opGlobal         = 'c'
	opStackGlobal    = 0x93
	opReduce         = 'R'
	opBuild          = 'b'
	opInst           = 'i'
	opObj            = 'o'
	opNewObj         = 0x81
	opNewObjEx       = 0x92
	opExt1           = 0x82
	opExt2           = 0x83
	opExt4           = 0x84
	opPersID         = 'P'
	opBinPersID      = 'Q'
	opNextBuffer     = 0x97
	opReadonlyBuffer = 0x98
)

// calling has the opcodes with which a pickle names or calls code.
var calling = map[byte]string{
	opGlobal: "GLOBAL", opStackGlobal: "STACK_GLOBAL", opReduce: "REDUCE", opBuild: "BUILD", opInst: "INST",
	opObj: "OBJ", opNewObj: "NEWOBJ", opNewObjEx: "NEWOBJ_EX", opExt1: "EXT1", opExt2: "EXT2", opExt4: "EXT4",
	opPersID: "PERSID", opBinPersID: "BINPERSID", opNextBuffer: "NEXT_BUFFER", opReadonlyBuffer: "READONLY_BUFFER",
}
