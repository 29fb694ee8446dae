package neon

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// statement writes one.
func (w *writer) statement(s statement) {
	w.scratch = 0
	if s.label != "" {
		w.out.WriteString(s.label + ":\n")
		return
	}
	if s.op[0] != 'V' || s.op == "VZEROUPPER" {
		w.integer(s)
		return
	}
	dst, srcs := s.args[len(s.args)-1], s.args[:len(s.args)-1]
	n, wide, _ := number(dst)
	d := w.regs[n]
	from := func(i int) pair { return w.source(srcs[i], wide) }
	switch {
	case moves[s.op]:
		w.move(srcs[0], dst)
		if m := static.FindStringSubmatch(srcs[0]); m != nil {
			w.loaded[n] = m[1]
			return
		}
	case lanewise[s.op] != "":
		name, kind, _ := strings.Cut(lanewise[s.op], " ")
		a := from(len(srcs) - 1)
		if len(srcs) == 1 {
			for _, h := range w.each(dst) {
				w.v("%s v%d.%s, v%d.%s", name, d[h], kind, a[h], kind)
			}
			break
		}
		if name == "eor" && srcs[0] == dst && srcs[1] == dst {
			for _, h := range w.each(dst) {
				w.v("movi v%d.4s, #0x0", d[h])
			}
			break
		}
		b := from(0)
		for _, h := range w.each(dst) {
			w.three(name, kind, d[h], a[h], b[h], srcs[1], srcs[0])
		}
	case shifts[s.op] != "":
		w.shift(s, d)
	default:
		w.special(s, d, srcs, dst, wide)
	}
	delete(w.loaded, n)
}

// three is an instruction of three registers, of which one may be a number for all.
func (w *writer) three(name, kind string, d, a, b int, first, second string) {
	one := func(arg string) bool { n, _, ok := number(arg); return ok && w.lane[n] }
	switch {
	case one(first):
		w.v("%s v%d.%s, v%d.%s, v%d.s[0]", name, d, kind, b, kind, a)
	case one(second):
		w.v("%s v%d.%s, v%d.%s, v%d.s[0]", name, d, kind, a, kind, b)
	default:
		w.v("%s v%d.%s, v%d.%s, v%d.%s", name, d, kind, a, kind, b, kind)
	}
}

func (w *writer) move(src, dst string) {
	from, wide, load := number(dst)
	to, wideFrom, store := number(src)
	switch {
	case load && store:
		for _, h := range w.each(dst) {
			w.v("mov v%d.16b, v%d.16b", w.regs[from][h], w.regs[to][h])
		}
	case load:
		r := w.regs[from]
		m := static.FindStringSubmatch(src)
		equal := m != nil && w.uniform(m[1]) // which lies there once
		if !wide || equal {
			r[1] = r[0]
		}
		w.whole("ld", r, src)
		if equal && wide && !w.single[from] {
			w.v("mov v%d.16b, v%d.16b", w.regs[from][1], r[0])
		}
	default:
		r := w.regs[to]
		if !wideFrom {
			r[1] = r[0]
		} else if w.single[to] {
			fail("%s: %s has one half", w.text, src)
		}
		w.whole("st", r, dst)
	}
}

// shift is by a number, or by one in a register for all elements.
func (w *writer) shift(s statement, d pair) {
	name, kind, _ := strings.Cut(shifts[s.op], " ")
	x := w.source(s.args[1], true)
	if by, ok := strings.CutPrefix(s.args[0], "$"); ok {
		for _, h := range w.each(s.args[2]) {
			w.v("%s v%d.%s, v%d.%s, #%s", name, d[h], kind, x[h], kind, by)
		}
		return
	}
	if kind != "4s" {
		fail("%s: %v", w.text, s)
	}
	n, t := w.source(s.args[0], false)[0], w.temp()
	w.v("dup v%d.4s, v%d.s[0]", t, n)
	if name == "ushr" {
		w.v("neg v%d.4s, v%d.4s", t, t)
	}
	for _, h := range w.each(s.args[2]) {
		w.v("ushl v%d.4s, v%d.4s, v%d.4s", d[h], x[h], t)
	}
}

// special is what does not do the same to all elements, or takes several instructions.
func (w *writer) special(s statement, d pair, srcs []string, dst string, wide bool) {
	from := func(i int) pair { return w.source(srcs[i], wide) }
	low := func(i int) int { return w.source(srcs[i], false)[0] }
	halves := w.each(dst)
	both := func(text string, args func(h int) []any) {
		for _, h := range halves {
			w.v(text, args(h)...)
		}
	}
	switch s.op {
	case "VFMADD231PS", "VFNMADD231PS":
		a, b := from(1), from(0)
		for _, h := range halves {
			w.three(map[bool]string{true: "fmla", false: "fmls"}[s.op == "VFMADD231PS"], "4s", d[h], a[h], b[h], srcs[1], srcs[0])
		}
	case "VFMADD213PS", "VFMSUB213PS":
		add, b, t := from(0), from(1), w.temp()
		for _, h := range halves {
			w.v(map[bool]string{true: "mov v%d.16b, v%d.16b", false: "fneg v%d.4s, v%d.4s"}[s.op == "VFMADD213PS"], t, add[h])
			w.v("fmla v%d.4s, v%d.4s, v%d.4s\nmov v%d.16b, v%d.16b", t, b[h], d[h], d[h], t)
		}
	case "VMINPS", "VMAXPS", "VMAXSS": // the first source if it is less or greater, else the second
		a, b := from(1), from(0)
		for _, h := range halves {
			w.choose(d[h], a[h], b[h], func(to int) {
				if s.op == "VMINPS" {
					w.v("fcmgt v%d.4s, v%d.4s, v%d.4s", to, b[h], a[h])
				} else {
					w.v("fcmgt v%d.4s, v%d.4s, v%d.4s", to, a[h], b[h])
				}
			})
		}
	case "VPBLENDVB", "VBLENDVPS": // masks are all ones or zeros
		mask, a, b := from(0), from(1), from(2)
		for _, h := range halves {
			t := w.temp()
			w.v("mov v%d.16b, v%d.16b\nbsl v%d.16b, v%d.16b, v%d.16b\nmov v%d.16b, v%d.16b", t, mask[h], t, a[h], b[h], d[h], t)
			w.scratch--
		}
	case "VCMPPS":
		a, b := w.source(srcs[2], wide), from(1)
		for _, h := range halves {
			switch srcs[0] {
			case "$4": // not equal, or NaN
				w.v("fcmeq v%d.4s, v%d.4s, v%d.4s\nmvn v%d.16b, v%d.16b", d[h], a[h], b[h], d[h], d[h])
			case "$5": // not less, or NaN
				w.v("fcmgt v%d.4s, v%d.4s, v%d.4s\nmvn v%d.16b, v%d.16b", d[h], b[h], a[h], d[h], d[h])
			case "$13": // not less, and no NaN
				w.v("fcmge v%d.4s, v%d.4s, v%d.4s", d[h], a[h], b[h])
			default:
				fail("%s: VCMPPS %s", w.text, srcs[0])
			}
		}
	case "VMASKMOVPS":
		w.masked(srcs, dst)
	case "VBROADCASTSS":
		if strings.HasSuffix(srcs[0], "(FP)") {
			w.line("FMOVS %s, F%d", srcs[0], d[0])
		} else {
			w.v("ldr s%d, %s", d[0], w.near(srcs[0], 4))
		}
		if n, _, _ := number(dst); !w.lane[n] {
			for i := len(halves) - 1; i >= 0; i-- {
				w.v("dup v%d.4s, v%d.s[0]", d[i], d[0])
			}
		}
	case "VPBROADCASTQ":
		w.line("MOVD %s, R16", srcs[0])
		both("dup v%d.2d, x16", func(h int) []any { return []any{d[h]} })
	case "VPBROADCASTD":
		a := low(0)
		for i := len(halves) - 1; i >= 0; i-- {
			w.v("dup v%d.4s, v%d.s[0]", d[i], a)
		}
	case "VMOVD":
		if r := gp(dst); r >= 0 {
			w.v("fmov w%d, s%d", r, low(0))
		} else {
			w.v("fmov s%d, w%d", d[0], gp(srcs[0]))
		}
	case "VMOVQ":
		if _, _, ok := number(dst); ok {
			w.v("ldr d%d, %s", d[0], w.near(srcs[0], 8))
		} else {
			w.v("str d%d, %s", low(0), w.near(dst, 8))
		}
	case "VMOVSD":
		w.line("FMOVD F%d, %s", low(0), dst)
	case "VEXTRACTF128", "VEXTRACTI128":
		r, _, _ := number(srcs[1])
		if _, _, ok := number(dst); !ok {
			w.whole("st", pair{w.regs[r][1], w.regs[r][1]}, dst)
		} else {
			w.v("mov v%d.16b, v%d.16b", d[0], w.regs[r][1])
		}
	case "VINSERTF128":
		if a := w.source(srcs[2], true); a != d {
			fail("%s: %v", w.text, s)
		}
		w.whole("ld", pair{d[1], d[1]}, srcs[1])
	case "VPERM2F128":
		h := map[string]int{"$0x20": 0, "$0x31": 1}[srcs[0]]
		b, a := from(1), from(2)
		if d[0] == b[h] {
			fail("%s: %v", w.text, s)
		}
		w.v("mov v%d.16b, v%d.16b\nmov v%d.16b, v%d.16b", d[0], a[h], d[1], b[h])
	case "VSHUFPS":
		b, a := from(1), from(2)
		both(map[string]string{"$0x44": "zip1", "$0xee": "zip2"}[srcs[0]]+" v%d.2d, v%d.2d, v%d.2d", func(h int) []any { return []any{d[h], a[h], b[h]} })
	case "VPSHUFD", "VPERMILPS", "VPERMILPD":
		a := from(1)
		for _, h := range halves {
			if srcs[0] == "$0xb1" {
				w.v("rev64 v%d.4s, v%d.4s", d[h], a[h])
			} else if srcs[0] == "$0x4e" || srcs[0] == "$1" && s.op == "VPERMILPD" {
				w.v("ext v%d.16b, v%d.16b, v%d.16b, #8", d[h], a[h], a[h])
			} else {
				fail("%s: %v", w.text, s)
			}
		}
	case "VPSRLDQ":
		t := w.temp()
		w.v("movi v%d.4s, #0x0\next v%d.16b, v%d.16b, v%d.16b, #%s", t, d[0], low(1), t, srcs[0][1:])
	case "VPERMQ", "VPERMD": // halves by turns, of words of 64 bits and of 32
		kind := "2d"
		if s.op == "VPERMD" {
			index, _, _ := number(srcs[1])
			if !slices.Equal(w.data[w.loaded[index]], []uint32{0, 4, 1, 5, 2, 6, 3, 7}) {
				fail("%s: %v with %q", w.text, s, w.loaded[index])
			}
			kind, srcs = "4s", []string{"$0xd8", srcs[0]}
		}
		if srcs[0] != "$0xd8" {
			fail("%s: %v", w.text, s)
		}
		a, t := from(1), w.temp()
		w.v("zip1 v%[1]d.%[2]s, v%[3]d.%[2]s, v%[4]d.%[2]s\nzip2 v%[5]d.%[2]s, v%[3]d.%[2]s, v%[4]d.%[2]s\nmov v%[6]d.16b, v%[1]d.16b", t, kind, a[0], a[1], d[1], d[0])
	case "VPERMPS": // the lower three bits of an element are the number of one of the table
		table, index, x, c := from(0), from(1), w.temp(), w.temp()
		w.line("MOVD $0x03020100, R16")
		for _, h := range halves {
			w.v("movi v%[1]d.4s, #0x7\nand v%[2]d.16b, v%[3]d.16b, v%[1]d.16b\nmovi v%[1]d.16b, #0x4\nmul v%[2]d.4s, v%[2]d.4s, v%[1]d.4s", c, x, index[h])
			w.v("dup v%[1]d.4s, w16\nadd v%[2]d.4s, v%[2]d.4s, v%[1]d.4s\ntbl v%[3]d.16b, {v%[4]d.16b, v%[5]d.16b}, v%[2]d.16b", c, x, d[h], table[0], table[1])
		}
	case "VPSHUFB":
		mask, a := from(0), from(1)
		both("tbl v%d.16b, {v%d.16b}, v%d.16b", func(h int) []any { return []any{d[h], a[h], mask[h]} })
	case "VPMOVZXBW", "VPMOVSXBW", "VCVTPH2PS", "VCVTPS2PD":
		text := map[string][2]string{
			"VPMOVZXBW": {"uxtl v%d.8h, v%d.8b", "uxtl2 v%d.8h, v%d.16b"}, "VPMOVSXBW": {"sxtl v%d.8h, v%d.8b", "sxtl2 v%d.8h, v%d.16b"},
			"VCVTPH2PS": {"fcvtl v%d.4s, v%d.4h", "fcvtl2 v%d.4s, v%d.8h"}, "VCVTPS2PD": {"fcvtl v%d.2d, v%d.2s", "fcvtl2 v%d.2d, v%d.4s"},
		}[s.op]
		a := low(0)
		if wide {
			w.v(text[1], d[1], a)
		}
		w.v(text[0], d[0], a)
	case "VPMOVZXBD":
		t := w.temp()
		w.v("uxtl v%[1]d.8h, v%[2]d.8b\nuxtl v%[3]d.4s, v%[1]d.4h\nuxtl2 v%[4]d.4s, v%[1]d.8h", t, low(0), d[0], d[1])
	case "VPACKUSDW", "VPACKUSWB":
		narrow, full, wider := "4h", "8h", "4s"
		if s.op == "VPACKUSWB" {
			narrow, full, wider = "8b", "16b", "8h"
		}
		b, a := from(0), from(1)
		for _, h := range halves {
			t := d[h]
			if t == b[h] {
				t = w.temp()
			}
			w.v("sqxtun v%[1]d.%[2]s, v%[3]d.%[4]s\nsqxtun2 v%[1]d.%[5]s, v%[6]d.%[4]s", t, narrow, a[h], wider, full, b[h])
			if t != d[h] {
				w.v("mov v%d.16b, v%d.16b", d[h], t)
			}
		}
	case "VPMULUDQ":
		b, a, t, u := from(0), from(1), w.temp(), w.temp()
		for _, h := range halves {
			w.v("xtn v%d.2s, v%d.2d\nxtn v%d.2s, v%d.2d\numull v%d.2d, v%d.2s, v%d.2s", t, a[h], u, b[h], d[h], t, u)
		}
	case "VPSRLVD", "VPSLLVD": // 32 and more leave nothing
		by, a, t := from(0), from(1), w.temp()
		for _, h := range halves {
			w.v("movi v%[1]d.4s, #0x20\numin v%[1]d.4s, v%[1]d.4s, v%[2]d.4s", t, by[h])
			if s.op == "VPSRLVD" {
				w.v("neg v%d.4s, v%d.4s", t, t)
			}
			w.v("ushl v%d.4s, v%d.4s, v%d.4s", d[h], a[h], t)
		}
	case "VPMADDUBSW": // products that a byte holds
		b, a, t := from(0), from(1), w.temp()
		for _, h := range halves {
			w.v("mul v%d.16b, v%d.16b, v%d.16b\nuaddlp v%d.8h, v%d.16b", t, a[h], b[h], d[h], t)
		}
	case "VPMOVMSKB": // to be followed by POPCNTL
		a, t, u := w.source(srcs[0], true), w.temp(), w.temp()
		w.v("ushr v%[1]d.16b, v%[2]d.16b, #7\nushr v%[3]d.16b, v%[4]d.16b, #7\nadd v%[1]d.16b, v%[1]d.16b, v%[3]d.16b\naddv b%[1]d, v%[1]d.16b\nfmov w%[5]d, s%[1]d", t, a[0], u, a[1], gp(dst))
	case "VMOVMSKPS": // to be followed by TESTL: any bits
		a, t := w.source(srcs[0], true), w.temp()
		w.v("orr v%[1]d.16b, v%[2]d.16b, v%[3]d.16b\nsshr v%[1]d.4s, v%[1]d.4s, #31\numaxv s%[1]d, v%[1]d.4s\nfmov w%[4]d, s%[1]d", t, a[0], a[1], gp(dst))
	default:
		fail("%s: no %s", w.text, s.op)
	}
}

// masked moves the first CX bytes of a register, less than 32, from or to memory.
func (w *writer) masked(srcs []string, dst string) {
	w.labels++
	n, _, load := number(dst)
	name, place := "ld1", srcs[0]
	if !load {
		name, place = "st1", dst
		n, _, _ = number(srcs[0])
	}
	r := w.regs[n]
	base, off := w.address(place)
	if base != 16 || off != 0 {
		w.line("ADD $%d, R%d, R16", off, base)
	}
	if load {
		w.v("movi v%d.4s, #0x0\nmovi v%d.4s, #0x0", r[0], r[1])
	}
	w.line("MOVD R2, R17")
	for i := range 7 {
		w.v("%s {v%d.s}[%d], [x16], #4", name, r[i/4], i%4)
		if i < 6 {
			w.line("SUBS $4, R17\n\tBEQ masked%d", w.labels)
		}
	}
	w.out.WriteString(fmt.Sprintf("masked%d:\n", w.labels))
}

// jumps are conditions, after a comparison of a first operand with a second.
var jumps = map[string]string{
	"JMP": "B", "JEQ": "BEQ", "JZ": "BEQ", "JNE": "BNE", "JNZ": "BNE", "JLT": "BLT", "JLE": "BLE", "JGE": "BGE", "JGT": "BGT", "JHI": "BHI",
}

var arithmetic = map[string]string{
	"ADDQ": "ADDS", "SUBQ": "SUBS", "ANDQ": "ANDS", "ADDL": "ADDSW", "SUBL": "SUBSW", "SHLQ": "LSL", "SHLL": "LSLW",
}

// integer writes what is not for vectors.
func (w *writer) integer(s statement) {
	reg := func(arg string) string { return "R" + strconv.Itoa(gp(arg)) }
	value := func(arg string) string { // a register or a number
		if gp(arg) >= 0 {
			return reg(arg)
		}
		return arg
	}
	place := func(arg string) string { // in memory
		if strings.HasSuffix(arg, "(FP)") {
			return arg
		}
		base, off := w.address(arg)
		return strconv.Itoa(off) + "(R" + strconv.Itoa(base) + ")"
	}
	switch s.op {
	case "VZEROUPPER", "SFENCE", "POPCNTL":
	case "RET":
		w.line("RET")
	case "MOVQ", "MOVL", "MOVBLZX", "MOVSS":
		src, dst := s.args[0], s.args[1]
		load, store := map[string]string{"MOVQ": "MOVD", "MOVL": "MOVWU", "MOVBLZX": "MOVBU"}[s.op], map[string]string{"MOVQ": "MOVD", "MOVL": "MOVW", "MOVSS": "FMOVS"}[s.op]
		switch n, _, vector := number(src); {
		case vector:
			w.line("%s F%d, %s", store, w.regs[n][0], place(dst))
		case gp(dst) < 0:
			w.line("%s %s, %s", store, reg(src), place(dst))
		case strings.HasPrefix(src, "$") || gp(src) >= 0:
			w.line("MOVD %s, %s", value(src), reg(dst))
		default:
			w.line("%s %s, %s", load, place(src), reg(dst))
		}
	case "LEAQ":
		m := memory.FindStringSubmatch(s.args[0])
		switch {
		case static.MatchString(s.args[0]):
			base, off := w.address(s.args[0])
			w.line("ADD $%d, R%d, %s", off, base, reg(s.args[1]))
		case m != nil && m[1] == "" && m[3] != "":
			w.line("ADD %s, %s, %s", shifted(gp(m[3]), scales[m[4]]), reg(m[2]), reg(s.args[1]))
		default:
			fail("%s: %v", w.text, s)
		}
	case "ADDQ", "SUBQ", "ANDQ", "ADDL", "SUBL", "SHLQ", "SHLL":
		w.line("%s %s, %s", arithmetic[s.op], value(s.args[0]), reg(s.args[1]))
		if s.op == "SHLL" {
			w.line("TSTW %s, %s", reg(s.args[1]), reg(s.args[1]))
		}
	case "DECQ", "DECL":
		w.line("SUBS $1, %s", reg(s.args[0]))
	case "INCQ":
		w.line("ADDS $1, %s", reg(s.args[0]))
	case "XORL", "XORQ":
		if s.args[0] != s.args[1] {
			fail("%s: %v", w.text, s)
		}
		w.line("MOVD $0, %s", reg(s.args[0]))
	case "CMPQ", "TESTQ", "CMPL", "TESTL":
		w.line("%s %s, %s", map[string]string{"CMPQ": "CMP", "CMPL": "CMPW", "TESTQ": "TST", "TESTL": "TSTW"}[s.op], value(s.args[1]), reg(s.args[0]))
	case "CMOVQLT", "CMOVLEQ":
		w.line("CSEL %s, %s, %s, %s", s.op[5:], reg(s.args[0]), reg(s.args[1]), reg(s.args[1]))
	case "SETNE":
		w.line("CSET NE, R16\n\tMOVB R16, %s", s.args[0])
	case "PREFETCHT0", "PREFETCHT1":
		level := map[string]string{"PREFETCHT0": "pldl1keep", "PREFETCHT1": "pldl2keep"}[s.op]
		w.v("prfm %s, %s", level, w.near(s.args[0], 8))
	default:
		if jumps[s.op] == "" {
			fail("%s: no %s", w.text, s.op)
		}
		w.line("%s %s", jumps[s.op], s.args[0])
	}
}

// dispatch goes to the function of a table that the argument rows counts from 1.
func (w *writer) dispatch(targets []string) {
	w.line("MOVD rows+8(FP), R0")
	for i, target := range targets {
		w.line("CMP $%d, R0\n\tBNE other%d\n\tB %s\nother%d:", i+1, i+1, target, i+1)
	}
	w.line("RET")
}
