package neon

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// statement is an instruction, or a label without an instruction.
type statement struct {
	label, op string
	args      []string
}

// function is the code that follows a TEXT line.
type function struct {
	text string // the line itself
	doc  []string
	body []statement
}

// program is a source with its macros expanded.
type program struct {
	functions []function
	data      map[string][]uint32 // the contents of symbols, in words
	tables    map[string][]string // the functions whose addresses a symbol holds
}

type macro struct {
	params []string
	body   string
}

var (
	comment  = regexp.MustCompile(`//.*`)
	defined  = regexp.MustCompile(`^#define (\w+)(?:\(([^)]*)\))?[ \t]*`)
	called   = regexp.MustCompile(`^(\w+)(?:\((.*)\))?$`)
	word     = regexp.MustCompile(`\b[A-Za-z_]\w*\b`)
	dataLine = regexp.MustCompile(`^DATA (\w+)<>\+(\d+)\(SB\)/(\d), \$(.*)$`)
	sum      = regexp.MustCompile(`\((\d+)\+(\d+)\)`)
)

// parse reads amd64 assembly.
func parse(source string) program {
	p := program{data: map[string][]uint32{}, tables: map[string][]string{}}
	macros := map[string]macro{}
	var doc []string
	lines := strings.Split(source, "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(comment.ReplaceAllString(lines[i], ""))
		switch {
		case strings.HasPrefix(line, "#define"):
			for strings.HasSuffix(line, `\`) {
				i++
				line = line[:len(line)-1] + "\n" + strings.TrimSpace(comment.ReplaceAllString(lines[i], ""))
			}
			m := defined.FindStringSubmatch(line)
			macros[m[1]] = macro{split(m[2]), line[len(m[0]):]}
			doc = nil
		case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "GLOBL"):
		case strings.HasPrefix(line, "DATA"):
			p.datum(line)
		case strings.HasPrefix(line, "TEXT"):
			p.functions = append(p.functions, function{text: line, doc: doc})
			doc = nil
		case strings.HasPrefix(lines[i], "//"):
			doc = append(doc, lines[i])
		case line != "":
			p.statements(line, macros)
		default:
			doc = nil
		}
	}
	return p
}

func split(list string) []string {
	var items []string
	depth, from := 0, 0
	for i, c := range list + "," {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			if item := strings.TrimSpace(list[from:i]); item != "" {
				items = append(items, item)
			}
			from = i + 1
		}
	}
	return items
}

// statements expands a line's macros and appends its statements to the last function. It parses
// DATA lines.
func (p *program) statements(text string, macros map[string]macro) {
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		part = strings.TrimSpace(part)
		if m := called.FindStringSubmatch(part); m != nil {
			if macro, ok := macros[m[1]]; ok {
				args := split(m[2])
				p.statements(word.ReplaceAllStringFunc(macro.body, func(name string) string {
					if i := slices.Index(macro.params, name); i >= 0 {
						return args[i]
					}
					return name
				}), macros)
				continue
			}
		}
		if part == "" {
			continue
		}
		if m := dataLine.FindString(part); m != "" {
			p.datum(part)
			continue
		}
		if strings.HasPrefix(part, "GLOBL") {
			continue
		}
		f := &p.functions[len(p.functions)-1]
		if label, ok := strings.CutSuffix(part, ":"); ok {
			f.body = append(f.body, statement{label: label})
			continue
		}
		op, args, _ := strings.Cut(part, " ")
		f.body = append(f.body, statement{op: op, args: split(sum.ReplaceAllStringFunc(args, func(s string) string {
			m := sum.FindStringSubmatch(s)
			a, _ := strconv.Atoi(m[1])
			b, _ := strconv.Atoi(m[2])
			return strconv.Itoa(a + b)
		}))})
	}
}

// datum parses a DATA line of eight bytes.
func (p *program) datum(line string) {
	m := dataLine.FindStringSubmatch(line)
	if m == nil || m[3] != "8" {
		fail("cannot parse %q", line)
	}
	if strings.HasSuffix(m[4], "(SB)") {
		p.tables[m[1]] = append(p.tables[m[1]], m[4])
		return
	}
	var bits uint64
	if n, err := strconv.ParseInt(m[4], 0, 64); err == nil {
		bits = uint64(n)
	} else if bits, err = strconv.ParseUint(m[4], 0, 64); err != nil {
		fail("cannot parse %q", line)
	}
	p.data[m[1]] = append(p.data[m[1]], uint32(bits), uint32(bits>>32))
}

// uniform reports whether all words of a symbol are the same.
func (p *program) uniform(symbol string) bool {
	return len(slices.Compact(slices.Clone(p.data[symbol]))) == 1
}

// constants returns the offset of each used symbol in the translation's table of constants, in
// bytes, and the text of the table. A uniform symbol takes 16 bytes.
func (p *program) constants(used map[string]bool) (at map[string]int, text string) {
	at = map[string]int{}
	var out strings.Builder
	end := 0
	for _, name := range slices.Sorted(maps.Keys(used)) {
		words := p.data[name]
		if p.uniform(name) {
			words = words[:4]
		}
		at[name] = end
		for i := 0; i < len(words); i += 2 {
			fmt.Fprintf(&out, "DATA constants<>+%d(SB)/8, $0x%08x%08x // %s\n", end, words[i+1], words[i], name)
			end += 8
		}
	}
	if end > 0 {
		fmt.Fprintf(&out, "GLOBL constants<>(SB), RODATA|NOPTR, $%d\n", end)
	}
	return at, out.String()
}
