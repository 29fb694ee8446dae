package neon

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// statement writes the translation of a statement.
func (w *writer) statement(s statement) {
	w.scratch = 0
	if s.label != "" {
		w.label("%s", s.label)
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

// three writes an instruction with three registers, one of which may be replaced by a single
// element that is used for all lanes.
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
		equal := m != nil && w.program.uniform(m[1]) // a uniform symbol takes a single register
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
			fail("%s: %s has one half", w.function.text, src)
		}
		w.whole("st", r, dst)
	}
}

// shift writes a shift by a number, or by a register that gives one count for all elements.
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
		fail("%s: %v", w.function.text, s)
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

// templates maps instructions, with their immediates, to translations to several instructions, or
// to one with other operands. In each half, $d is the destination, and $0, $1 and $2 are the
// operands in order; $t and $u are scratch registers, and $t is $d if $d is no longer read.
// Translations of whole registers use $l and $h for the halves of the destination, and likewise
// for operands.
var templates = map[string]string{
	"VFMADD213PS": "mov $t.16b, $0.16b; fmla $t.4s, $1.4s, $d.4s; mov $d.16b, $t.16b",
	"VFMSUB213PS": "fneg $t.4s, $0.4s; fmla $t.4s, $1.4s, $d.4s; mov $d.16b, $t.16b",
	// The first source if it is less or greater, otherwise the second.
	"VMINPS": "fcmgt $t.4s, $0.4s, $1.4s; bsl $t.16b, $1.16b, $0.16b; mov $d.16b, $t.16b",
	"VMAXPS": "fcmgt $t.4s, $1.4s, $0.4s; bsl $t.16b, $1.16b, $0.16b; mov $d.16b, $t.16b",
	"VMAXSS": "fcmgt $t.4s, $1.4s, $0.4s; bsl $t.16b, $1.16b, $0.16b; mov $d.16b, $t.16b",
	// Masks are all ones or zeros.
	"VPBLENDVB": "mov $t.16b, $0.16b; bsl $t.16b, $1.16b, $2.16b; mov $d.16b, $t.16b",
	"VBLENDVPS": "mov $t.16b, $0.16b; bsl $t.16b, $1.16b, $2.16b; mov $d.16b, $t.16b",
	// Not equal, or NaN; not less, or NaN; not less, and not NaN.
	"VCMPPS $4":  "fcmeq $d.4s, $2.4s, $1.4s; mvn $d.16b, $d.16b",
	"VCMPPS $5":  "fcmgt $d.4s, $1.4s, $2.4s; mvn $d.16b, $d.16b",
	"VCMPPS $13": "fcmge $d.4s, $2.4s, $1.4s",

	"VSHUFPS $0x44": "zip1 $d.2d, $2.2d, $1.2d", "VSHUFPS $0xee": "zip2 $d.2d, $2.2d, $1.2d",
	"VPSHUFD $0x4e": "ext $d.16b, $1.16b, $1.16b, #8", "VPSHUFD $0xb1": "rev64 $d.4s, $1.4s",
	"VPERMILPS $0x4e": "ext $d.16b, $1.16b, $1.16b, #8", "VPERMILPS $0xb1": "rev64 $d.4s, $1.4s", "VPERMILPD $1": "ext $d.16b, $1.16b, $1.16b, #8",
	"VPSRLDQ $8": "movi $u.4s, #0x0; ext $d.16b, $1.16b, $u.16b, #8",
	"VPSHUFB":    "tbl $d.16b, {$1.16b}, $0.16b",
	"VPMULUDQ":   "xtn $t.2s, $1.2d; xtn $u.2s, $0.2d; umull $d.2d, $t.2s, $u.2s",
	"VPACKUSDW":  "sqxtun $t.4h, $1.4s; sqxtun2 $t.8h, $0.4s; mov $d.16b, $t.16b",
	"VPACKUSWB":  "sqxtun $t.8b, $1.8h; sqxtun2 $t.16b, $0.8h; mov $d.16b, $t.16b",
	"VPMADDUBSW": "mul $u.16b, $1.16b, $0.16b; uaddlp $d.8h, $u.16b", // only for products that fit in a byte
	// Shifts by 32 and more give 0.
	"VPSRLVD": "movi $u.4s, #0x20; umin $u.4s, $u.4s, $0.4s; neg $u.4s, $u.4s; ushl $d.4s, $1.4s, $u.4s",
	"VPSLLVD": "movi $u.4s, #0x20; umin $u.4s, $u.4s, $0.4s; ushl $d.4s, $1.4s, $u.4s",

	"VPMOVZXBW":    "uxtl2 $h.8h, $0l.16b; uxtl $l.8h, $0l.8b",
	"VPMOVSXBW":    "sxtl2 $h.8h, $0l.16b; sxtl $l.8h, $0l.8b",
	"VPMOVZXBD":    "uxtl $u.8h, $0l.8b; uxtl2 $h.4s, $u.8h; uxtl $l.4s, $u.4h",
	"VCVTPH2PS":    "fcvtl2 $h.4s, $0l.8h; fcvtl $l.4s, $0l.4h",
	"VCVTPS2PD":    "fcvtl2 $h.2d, $0l.4s; fcvtl $l.2d, $0l.2s",
	"VPBROADCASTD": "dup $h.4s, $0l.s[0]; dup $l.4s, $0l.s[0]",
	// Alternating halves: of 64-bit words, and of 32-bit words by an index.
	"VPERMQ $0xd8":     "zip1 $u.2d, $1l.2d, $1h.2d; zip2 $h.2d, $1l.2d, $1h.2d; mov $l.16b, $u.16b",
	"VPERMD turns":     "zip1 $u.4s, $0l.4s, $0h.4s; zip2 $h.4s, $0l.4s, $0h.4s; mov $l.16b, $u.16b",
	"VPERM2F128 $0x20": "mov $l.16b, $2l.16b; mov $h.16b, $1l.16b",
	"VPERM2F128 $0x31": "mov $l.16b, $2h.16b; mov $h.16b, $1h.16b",
	// The lower three bits of an element are an index into the table; R16 is 0x03020100.
	"VPERMPS": "movi $u.4s, #0x7; and $t.16b, $1.16b, $u.16b; movi $u.16b, #0x4; mul $t.4s, $t.4s, $u.4s; dup $u.4s, w16; add $t.4s, $t.4s, $u.4s; tbl $d.16b, {$0l.16b, $0h.16b}, $t.16b",
}

var placeholder = regexp.MustCompile(`\$([dtulh]|[012][lh]?)\b`)

// template reports whether an instruction has a template, and if so writes its translation.
func (w *writer) template(s statement, d pair, srcs []string, dst string, wide bool) bool {
	key := s.op
	if s.op == "VPERMD" {
		if n, _, _ := number(srcs[1]); slices.Equal(w.program.data[w.loaded[n]], []uint32{0, 4, 1, 5, 2, 6, 3, 7}) {
			key += " turns"
		}
	} else if srcs[0][0] == '$' {
		key += " " + srcs[0]
	}
	text, known := templates[key]
	if !known {
		return false
	}
	if s.op == "VPERMPS" {
		w.line("MOVD $0x03020100, R16")
	}
	whole := strings.Contains(text, "$h")
	if whole && len(srcs) == 3 && srcs[1] == dst {
		fail("%s: %v", w.function.text, s) // the first move would overwrite an operand of the second
	}
	from := [3]pair{{-1, -1}, {-1, -1}, {-1, -1}}
	for i, src := range srcs {
		if src[0] != '$' {
			from[i] = w.source(src, wide && (!whole || strings.Contains(text, fmt.Sprintf("$%dh", i))))
		}
	}
	halves := w.each(dst)
	if whole {
		halves = halves[:1]
	}
	_, later, _ := strings.Cut(text, "; ")
	scratch := map[string]int{}
	for _, h := range halves {
		last := ""
		direct := strings.Count(text, "$d") == 1
		for i, p := range from { // operands that are read after $t has been written
			direct = direct && !(slices.Contains(p[:], d[h]) && strings.Contains(later, fmt.Sprintf("$%d", i)))
		}
		for _, part := range strings.Split(text, "; ") {
			part = placeholder.ReplaceAllStringFunc(part, func(m string) string {
				var r int
				switch m = m[1:]; {
				case m == "d" || m == "t" && direct:
					r = d[h]
				case m == "l" || m == "h":
					r = d[map[string]int{"l": 0, "h": 1}[m]]
				case m == "t" || m == "u":
					if _, has := scratch[m]; !has {
						scratch[m] = w.temp()
					}
					r = scratch[m]
				case len(m) == 2:
					r = from[m[0]-'0'][map[byte]int{'l': 0, 'h': 1}[m[1]]]
				default:
					r = from[m[0]-'0'][h]
				}
				return fmt.Sprintf("v%d", r)
			})
			if f := strings.Fields(part); part != last && (f[0] != "mov" || f[1] != f[2]+",") {
				w.v("%s", part)
			}
			last = part
		}
	}
	return true
}

// special writes the instructions that are no moves or shifts and not lanewise, by its own code or
// by their template.
func (w *writer) special(s statement, d pair, srcs []string, dst string, wide bool) {
	low := func(i int) int { return w.source(srcs[i], false)[0] }
	halves := w.each(dst)
	switch s.op {
	case "VFMADD231PS", "VFNMADD231PS":
		a, b := w.source(srcs[1], wide), w.source(srcs[0], wide)
		for _, h := range halves {
			w.three(map[bool]string{true: "fmla", false: "fmls"}[s.op == "VFMADD231PS"], "4s", d[h], a[h], b[h], srcs[1], srcs[0])
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
		for _, h := range halves {
			w.v("dup v%d.2d, x16", d[h])
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
			fail("%s: %v", w.function.text, s)
		}
		w.whole("ld", pair{d[1], d[1]}, srcs[1])
	case "VPMOVMSKB": // POPCNTL must follow
		a, t, u := w.source(srcs[0], true), w.temp(), w.temp()
		w.v("ushr v%[1]d.16b, v%[2]d.16b, #7\nushr v%[3]d.16b, v%[4]d.16b, #7\nadd v%[1]d.16b, v%[1]d.16b, v%[3]d.16b\naddv b%[1]d, v%[1]d.16b\nfmov w%[5]d, s%[1]d", t, a[0], u, a[1], gp(dst))
	case "VMOVMSKPS": // TESTL must follow: together they test whether any bit is set
		a, t := w.source(srcs[0], true), w.temp()
		w.v("orr v%[1]d.16b, v%[2]d.16b, v%[3]d.16b\nsshr v%[1]d.4s, v%[1]d.4s, #31\numaxv s%[1]d, v%[1]d.4s\nfmov w%[4]d, s%[1]d", t, a[0], a[1], gp(dst))
	default:
		if !w.template(s, d, srcs, dst, wide) {
			fail("%s: no %s %s", w.function.text, s.op, strings.Join(srcs, ", "))
		}
	}
}

// masked writes the move of the first CX bytes of a register, fewer than 32, from or to memory.
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
	w.label("masked%d", w.labels)
}

// jumps maps the jumps of amd64, after a comparison of the first operand with the second, to those
// of arm64.
var jumps = map[string]string{
	"JMP": "B", "JEQ": "BEQ", "JZ": "BEQ", "JNE": "BNE", "JNZ": "BNE", "JLT": "BLT", "JLE": "BLE", "JGE": "BGE", "JGT": "BGT", "JHI": "BHI",
}

var arithmetic = map[string]string{
	"ADDQ": "ADDS", "SUBQ": "SUBS", "ANDQ": "ANDS", "ADDL": "ADDSW", "SUBL": "SUBSW", "SHLQ": "LSL", "SHLL": "LSLW",
}

// integer writes instructions that do not use vectors.
func (w *writer) integer(s statement) {
	reg := func(arg string) string { return "R" + strconv.Itoa(gp(arg)) }
	value := func(arg string) string { // a register or a number
		if gp(arg) >= 0 {
			return reg(arg)
		}
		return arg
	}
	place := func(arg string) string { // an operand in memory
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
			fail("%s: %v", w.function.text, s)
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
			fail("%s: %v", w.function.text, s)
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
			fail("%s: no %s", w.function.text, s.op)
		}
		w.line("%s %s", jumps[s.op], s.args[0])
	}
}

// dispatch writes a jump to the target that the argument rows selects, counting from 1, or a
// return if there is no such target.
func (w *writer) dispatch(targets []string) {
	w.line("MOVD rows+8(FP), R0")
	for i, target := range targets {
		w.line("CMP $%d, R0\n\tBNE other%d\n\tB %s\nother%d:", i+1, i+1, target, i+1)
	}
	w.line("RET")
}
