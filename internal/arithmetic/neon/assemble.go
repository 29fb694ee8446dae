package neon

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// forms lists the instructions that assemble supports, without register numbers and immediates. Each is
// preceded by its encoding, which has zeros in place of these numbers.
//
//go:embed encodings.txt
var forms string

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

// assemble returns the encoding of an instruction that is written in the manual's syntax.
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
			return 0, fmt.Errorf("neon: the registers of the table are not consecutive: %q", text)
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
