package main

import (
	"fmt"
	"regexp"
	"strings"
)

// kernel is a function over slices: elementwise, or a reduction.
//
// Its code is assembly in which Vn is a full register of float32, and Dn is eight float64
// converted from eight float32. In addition to instructions it has these lines:
//
//	load p Vn            the current elements of p, 0 past the end
//	store Vn p
//	spread a Vn          the scalar a in every element
//	exp Vn               e^Vn; uses V10, V11, V12
//	keep Va where Vb i Vc    Va, or 0 if comparison i of Vb and Vc is false
//	mask Vn              0 past the end
//	fill Va Vb           Vb past the end
//	widen Vn Dm
//	count Vn Dm Dl       Dm += Vn, the lower eight first if a full register has sixteen; uses Dl
//	halve Va Vb          Ya = the larger of the halves of Va, in AVX-512; uses Vb
//
// and [name] is a constant. V14 and V15 are reserved in AVX2 in kernels with tails.
//
// An elementwise kernel computes the same result for an element in a full register and in the tail. A reduction
// adds elements i, i+8, i+16, ... to number i of eight partial sums, and adds these sums in halves. The order
// depends only on the length, and is the same for every instruction set. If eight is set, a reduction processes
// eight elements at a time, and otherwise full registers, with a count or a halve line.
type kernel struct {
	name, doc, args, results string
	begin, body, end         string
	eight                    bool
	sums                     int // the number of sums, which are the results in order
}

// parameter is an argument or a result, with its offset from the frame pointer.
type parameter struct {
	name, kind string
	offset     int
}

// layout assigns offsets to parameters as Go does.
func layout(list string, offset int) (placed []parameter, end int) {
	if list == "" {
		return nil, offset
	}
	var names []string
	for _, item := range strings.Split(list, ",") {
		name, kind, typed := strings.Cut(strings.TrimSpace(item), " ")
		names = append(names, name)
		if !typed {
			continue
		}
		size := 8
		if kind == "float32" {
			size = 4
		}
		for _, n := range names {
			offset = (offset + size - 1) / size * size
			placed = append(placed, parameter{n, kind, offset})
			offset += size
		}
		names = nil
	}
	return placed, offset
}

func (k kernel) parameters() (in, out []parameter, size int) {
	in, size = layout(k.args, 8)
	if k.results != "" {
		out, size = layout(k.results, (size+7)/8*8)
	}
	return in, out, size
}

// pointers are the registers of the pointer arguments in order.
var pointers = []string{"DI", "SI", "DX", "R8", "R9"}

// assembly returns the code for an instruction set.
func (k kernel) assembly(s set) string {
	in, out, _ := k.parameters()
	w := &writer{text: text{set: s}, kernel: k, at: map[string]string{}, params: map[string]parameter{}}
	wide := s.floats
	if k.eight {
		wide = 8
	}
	for _, p := range append(in, out...) {
		w.params[p.name] = p
	}
	for _, p := range in {
		switch p.kind {
		case "*float32":
			r := pointers[len(w.at)]
			w.at[p.name] = r
			w.line("\tMOVQ %s+%d(FP), %s", p.name, p.offset, r)
		case "int":
			w.line("\tMOVQ %s+%d(FP), CX", p.name, p.offset)
		}
	}
	for i := range k.sums {
		w.code(fmt.Sprintf("VXORPD D%d, D%d, D%d", i, i, i))
	}
	w.code(k.begin)
	w.line("\tXORQ AX, AX")
	w.line("\tMOVQ CX, BX")
	w.line("\tANDQ $-%d, BX", wide)
	w.line("\tJMP check")
	w.line("loop:")
	w.code(k.body)
	w.line("\tADDQ $%d, AX", wide)
	w.line("check:")
	w.line("\tCMPQ AX, BX")
	w.line("\tJLT loop")
	w.line("\tSUBQ AX, CX")
	w.line("\tJEQ done")
	w.tail = true
	w.masks()
	w.code(k.body)
	w.line("done:")
	for i := range k.sums {
		w.reduce(i, out[i])
	}
	w.code(k.end)
	w.line("\tVZEROUPPER")
	w.line("\tRET")
	return w.out.String()
}

// writer translates the lines of a kernel to an instruction set.
type writer struct {
	text
	kernel kernel
	at     map[string]string // the registers of pointers
	params map[string]parameter
	tail   bool
}

var (
	vectorName   = regexp.MustCompile(`\bV(\d+)\b`)
	doubleName   = regexp.MustCompile(`\bD(\d+)\b`)
	constantName = regexp.MustCompile(`\[(\w+)\]`)
	resultName   = regexp.MustCompile(`\{(\w+)\}`)
)

// v returns the register for Vn.
func (w *writer) v(name string) string {
	register := w.set.register
	if w.kernel.eight {
		register = "Y"
	}
	return vectorName.ReplaceAllString(name, register+"$1")
}

// code writes lines of a kernel.
func (w *writer) code(text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			w.instruction(line)
		}
	}
}

func (w *writer) instruction(line string) {
	f := strings.Fields(line)
	switch f[0] {
	case "load":
		w.partial("load", w.at[f[1]], w.v(f[2]))
	case "store":
		w.partial("store", w.v(f[1]), w.at[f[2]])
	case "spread":
		w.line("\tVBROADCASTSS %s+%d(FP), %s", f[1], w.params[f[1]].offset, w.v(f[2]))
	case "exp":
		w.code(strings.ReplaceAll(exponential, "X", f[1]))
	case "keep":
		w.keep(w.v(f[1]), w.v(f[3]), f[4], w.v(f[5]), w.v(f[1]))
	case "keepIn": // keepIn Vto Va where Vb i Vc: the same with a separate destination
		w.keep(w.v(f[2]), w.v(f[4]), f[5], withConstants(w.v(f[6])), w.v(f[1]))
	case "mask":
		w.partial("mask", w.v(f[1]))
	case "fill":
		w.partial("fill", w.v(f[1]), w.v(f[2]))
	case "widen":
		w.widen(f[1], f[2])
	case "count":
		w.count(f[1], f[2], f[3])
	case "halve":
		w.halve(f[1], f[2])
	default:
		w.plain(line)
	}
}

// plain writes an instruction, in AVX2 once for each half of a D.
func (w *writer) plain(line string) {
	line = withConstants(w.v(line))
	line = resultName.ReplaceAllStringFunc(line, func(m string) string {
		return fmt.Sprint(w.params[m[1:len(m)-1]].offset)
	})
	if !doubleName.MatchString(line) {
		w.line("\t%s", line)
		return
	}
	for half := range w.set.halves {
		w.line("\t%s", doubleName.ReplaceAllStringFunc(line, func(m string) string { return w.double(m, half) }))
	}
}

// exponential is the line "exp X"; the method Exp explains it.
const exponential = `
	VMOVUPS [expTop], V10
	VMINPS X, V10, V11
	VMOVUPS [round], V10
	VFMADD231PS [log2e], V11, V10 // t: n in its low bits
	VSUBPS [round], V10, V12
	VFNMADD231PS [ln2Hi], V12, V11
	VFNMADD231PS [ln2Lo], V12, V11 // r
	VPSLLD $23, V10, V10
	VPADDD [exponent], V10, V10 // 2^n
	VMOVUPS [exp6], V12
	VFMADD213PS [exp5], V11, V12
	VFMADD213PS [exp4], V11, V12
	VFMADD213PS [exp3], V11, V12
	VFMADD213PS [exp2], V11, V12
	VFMADD213PS [one], V11, V12
	VFMADD213PS [one], V11, V12
	VMULPS V10, V12, V12
	keepIn X V12 where X 5 [expMin] // not less`
