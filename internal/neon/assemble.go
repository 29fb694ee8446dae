package neon

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// forms are the instructions that assemble knows, without the numbers of registers and
// immediates, each with its encoding for numbers of 0.
const forms = `
4e20d400 fadd v.4s, v.4s, v.4s
4ea0d400 fsub v.4s, v.4s, v.4s
6e20dc00 fmul v.4s, v.4s, v.4s
6e20fc00 fdiv v.4s, v.4s, v.4s
4e60d400 fadd v.2d, v.2d, v.2d
4ee0d400 fsub v.2d, v.2d, v.2d
6e60dc00 fmul v.2d, v.2d, v.2d
4e20cc00 fmla v.4s, v.4s, v.4s
4ea0cc00 fmls v.4s, v.4s, v.4s
4ea08400 add v.4s, v.4s, v.4s
4ee08400 add v.2d, v.2d, v.2d
4e208400 add v.16b, v.16b, v.16b
6ea08400 sub v.4s, v.4s, v.4s
4e201c00 and v.16b, v.16b, v.16b
4ea01c00 orr v.16b, v.16b, v.16b
6e201c00 eor v.16b, v.16b, v.16b
6e601c00 bsl v.16b, v.16b, v.16b
6ea06400 umax v.4s, v.4s, v.4s
6ea06c00 umin v.4s, v.4s, v.4s
6ea08c00 cmeq v.4s, v.4s, v.4s
6e208c00 cmeq v.16b, v.16b, v.16b
6e608c00 cmeq v.8h, v.8h, v.8h
4e803800 zip1 v.4s, v.4s, v.4s
4e807800 zip2 v.4s, v.4s, v.4s
4ec03800 zip1 v.2d, v.2d, v.2d
4ec07800 zip2 v.2d, v.2d, v.2d
4e003800 zip1 v.16b, v.16b, v.16b
4e007800 zip2 v.16b, v.16b, v.16b
6e602c00 uqsub v.8h, v.8h, v.8h
4ea09c00 mul v.4s, v.4s, v.4s
4e209c00 mul v.16b, v.16b, v.16b
4ea0bc00 addp v.4s, v.4s, v.4s
4e20e400 fcmeq v.4s, v.4s, v.4s
6ea0e400 fcmgt v.4s, v.4s, v.4s
6e20e400 fcmge v.4s, v.4s, v.4s
6ea04400 ushl v.4s, v.4s, v.4s
2ea0c000 umull v.2d, v.2s, v.2s
4e000000 tbl v.16b, {v.16b}, v.16b
4e002000 tbl v.16b, {v.16b, v.16b}, v.16b
6ea1f800 fsqrt v.4s, v.4s
6ea0f800 fneg v.4s, v.4s
6e205800 mvn v.16b, v.16b
6ea0b800 neg v.4s, v.4s
4ea01c00 mov v.16b, v.16b
4ea00800 rev64 v.4s, v.4s
0ea12800 xtn v.2s, v.2d
2e612800 sqxtun v.4h, v.4s
6e612800 sqxtun2 v.8h, v.4s
2e212800 sqxtun v.8b, v.8h
6e212800 sqxtun2 v.16b, v.8h
0e217800 fcvtl v.4s, v.4h
4e217800 fcvtl2 v.4s, v.8h
0e617800 fcvtl v.2d, v.2s
4e617800 fcvtl2 v.2d, v.4s
6e202800 uaddlp v.8h, v.16b
4e31b800 addv b, v.16b
6eb0a800 umaxv s, v.4s
2f08a400 uxtl v.8h, v.8b
6f08a400 uxtl2 v.8h, v.16b
0f08a400 sxtl v.8h, v.8b
4f08a400 sxtl2 v.8h, v.16b
2f10a400 uxtl v.4s, v.4h
6f10a400 uxtl2 v.4s, v.8h
6f400400 ushr v.4s, v.4s, #
6f800400 ushr v.2d, v.2d, #
6f200400 ushr v.8h, v.8h, #
6f100400 ushr v.16b, v.16b, #
4f400400 sshr v.4s, v.4s, #
4f200400 sshr v.8h, v.8h, #
4f205400 shl v.4s, v.4s, #
4f405400 shl v.2d, v.2d, #
4f105400 shl v.8h, v.8h, #
6e000000 ext v.16b, v.16b, v.16b, #
4e040400 dup v.4s, v.s[0]
4e040c00 dup v.4s, w
4e080c00 dup v.2d, x
1e270000 fmov s, w
1e260000 fmov w, s
4f000400 movi v.4s, #
4f00e400 movi v.16b, #
4f801000 fmla v.4s, v.4s, v.s[0]
4fa01000 fmla v.4s, v.4s, v.s[1]
4f801800 fmla v.4s, v.4s, v.s[2]
4fa01800 fmla v.4s, v.4s, v.s[3]
4f805000 fmls v.4s, v.4s, v.s[0]
4f809000 fmul v.4s, v.4s, v.s[0]
3dc00000 ldr q, [x]
3d800000 str q, [x]
fd400000 ldr d, [x]
fd000000 str d, [x]
bd400000 ldr s, [x]
bd000000 str s, [x]
3cc00000 ldur q, [x]
3c800000 stur q, [x]
ad400000 ldp q, q, [x]
ad000000 stp q, q, [x]
bc606800 ldr s, [x, x]
0ddf8000 ld1 {v.s}[0], [x], #
0ddf9000 ld1 {v.s}[1], [x], #
4ddf8000 ld1 {v.s}[2], [x], #
4ddf9000 ld1 {v.s}[3], [x], #
0d9f8000 st1 {v.s}[0], [x], #
0d9f9000 st1 {v.s}[1], [x], #
4d9f8000 st1 {v.s}[2], [x], #
4d9f9000 st1 {v.s}[3], [x], #
f9800000 prfm pldl1keep, [x]
f9800002 prfm pldl2keep, [x]
f8a07800 prfm pldl1keep, [x, x, lsl 3]
`

var encodings = func() map[string]uint32 {
	table := map[string]uint32{}
	for line := range strings.Lines(strings.TrimSpace(forms)) {
		word, form, _ := strings.Cut(strings.TrimSpace(line), " ")
		bits, err := strconv.ParseUint(word, 16, 32)
		if err != nil {
			panic(err)
		}
		table[form] = uint32(bits)
	}
	return table
}()

var (
	numbered  = regexp.MustCompile(`\b([vqdsbxw])(\d+)|\bsp\b`)
	offset    = regexp.MustCompile(`, #(-?\d+)\]`)
	immediate = regexp.MustCompile(`#(-?\w+)$`)
)

// assemble returns the encoding of an instruction in the syntax of the manual.
func assemble(text string) (uint32, error) {
	name, _, _ := strings.Cut(text, " ")
	var regs []uint32
	form := strings.ReplaceAll(numbered.ReplaceAllStringFunc(text, func(m string) string {
		n := 31
		if m != "sp" {
			n, _ = strconv.Atoi(m[1:])
			m = m[:1]
		} else {
			m = "x"
		}
		regs = append(regs, uint32(n))
		return m
	}), "lsl #3", "lsl 3")
	imm, has := 0, false
	take := func(m string) {
		n, _ := strconv.ParseInt(strings.Trim(m, ", #]"), 0, 32)
		imm, has = int(n), true
	}
	form = offset.ReplaceAllStringFunc(form, func(m string) string { take(m); return "]" })
	form = immediate.ReplaceAllStringFunc(form, func(m string) string { take(m); return "#" })
	word, known := encodings[form]
	if !known {
		return 0, fmt.Errorf("neon: no encoding of %q", text)
	}
	places := []int{0, 5, 16}
	switch {
	case name == "ldp" || name == "stp":
		places = []int{0, 10, 5}
	case name == "prfm":
		places = []int{5, 16}
	case name == "mov":
		regs = append(regs, regs[1])
	case name == "tbl" && len(regs) == 4:
		if regs[2] != (regs[1]+1)%32 {
			return 0, fmt.Errorf("neon: the registers of the table are no neighbours: %q", text)
		}
		regs = append(regs[:2], regs[3])
	}
	for i, r := range regs {
		if r > 31 {
			return 0, fmt.Errorf("neon: no such register: %q", text)
		}
		word |= r << places[i]
	}
	if !has {
		return word, nil
	}
	scaled := func(size, bits, at int) {
		if n := imm / size; imm%size != 0 || n>>bits != 0 && n>>(bits-1) != -1 {
			word = 0
		}
		word |= uint32(imm/size) & (1<<bits - 1) << at
	}
	switch name {
	case "ushr", "sshr":
		word -= uint32(imm) << 16
	case "shl":
		word += uint32(imm) << 16
	case "ext":
		word |= uint32(imm) << 11
	case "movi":
		word |= uint32(imm)>>5<<16 | uint32(imm)&31<<5
	case "ldp", "stp":
		scaled(16, 7, 15)
		if imm < -1024 || imm > 1008 {
			word = 0
		}
	case "ldur", "stur":
		scaled(1, 9, 12)
	case "prfm":
		scaled(8, 12, 10)
	case "ldr", "str":
		scaled(map[byte]int{'q': 16, 'd': 8, 's': 4}[form[4]], 12, 10)
	}
	if word == 0 {
		return 0, fmt.Errorf("neon: the immediate does not fit: %q", text)
	}
	return word, nil
}
