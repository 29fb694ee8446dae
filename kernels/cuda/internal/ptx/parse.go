package ptx

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// ErrUnsupported is wrapped by errors of Parse about PTX that the package cannot run.
var ErrUnsupported = errors.New("ptx: not supported")

// Module is a parsed file. Its kernels may be launched concurrently.
type Module struct {
	// Kernels are the entries in the order of the file.
	Kernels []*Kernel
}

// Kernel returns the kernel with the given name, or nil.
func (m *Module) Kernel(name string) *Kernel {
	for _, k := range m.Kernels {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Param is a parameter of a kernel: bytes [Offset, Offset+Size) of the parameters of Launch.
type Param struct{ Size, Offset int }

// Kernel is an entry of a module.
type Kernel struct {
	Name   string
	Params []Param
	// ParamBytes is the size of all parameters, and Shared the size of the static shared
	// memory.
	ParamBytes, Shared int

	code      []instruction
	registers int
	constants []constant // registers that never change
	special   [numSpecial]int32
	dynamic   bool // it uses dynamic shared memory

	mu      sync.Mutex
	covered []bool // by instruction; guarded by mu
	launch  int
}

// Coverage returns the number of instructions of the kernel that a launch has run, the number
// of all instructions, the PTX lines of those that never ran, and the number of launches.
func (k *Kernel) Coverage() (ran, all int, missed []int, launches int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range k.covered {
		if c {
			ran++
		} else {
			missed = append(missed, k.code[i].line)
		}
	}
	return ran, len(k.code), missed, k.launch
}

// constant is a register with the same value for all threads.
type constant struct {
	register int32
	value    uint64
}

// Special registers, each with three dimensions.
const numSpecial = 12

var specials = [numSpecial]string{
	"%tid.x", "%tid.y", "%tid.z", "%ntid.x", "%ntid.y", "%ntid.z",
	"%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z",
}

// kind is the kind of an instruction.
type kind uint8

const (
	compute kind = iota // dst = f(a, b, c)
	unpack              // two registers of half the width from one
	load
	store
	atomic // integer, so that the order does not matter
	branch
	barrier
	multiply // matrix product of a whole warp
	end
)

// space is a state space.
type space uint8

const (
	global space = iota
	shared
	param
)

// instruction is an instruction of a kernel. Registers are indices; an immediate is a constant
// register.
type instruction struct {
	line      int
	kind      kind
	negate    bool // of the predicate
	predicate int32
	dst       [4]int32
	src       [3]int32
	tiles     []int32 // of multiply: 4 registers of a, 2 of b, 4 of c
	f         operation

	space  space
	size   uint8 // bytes of an element
	signed bool  // a load extends the sign
	many   uint8 // elements of a vector
	offset uint64

	label  string
	target int
}

// parser is the state of Parse.
type parser struct {
	externs   map[string]bool // names of dynamic shared memory
	line      int
	kernel    *Kernel
	names     map[string]int32 // registers
	symbols   map[string]uint64
	labels    map[string]int
	immediate map[uint64]int32
}

// Parse reads a module. An error names the line; for a construct that the package does not
// support, it wraps ErrUnsupported.
func Parse(text []byte) (*Module, error) {
	p := &parser{externs: map[string]bool{}}
	m := &Module{}
	inBody, header := false, ""
	fail := func(err error) (*Module, error) { return nil, fmt.Errorf("ptx: line %d: %w", p.line, err) }
	for i, raw := range strings.Split(string(text), "\n") {
		p.line = i + 1
		line, _, _ := strings.Cut(raw, "//")
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, ".version") || strings.HasPrefix(line, ".target") ||
			strings.HasPrefix(line, ".address_size") || strings.HasPrefix(line, ".pragma") || strings.HasPrefix(line, ".reg"):
		case inBody && line == "}":
			if err := p.finish(); err != nil {
				return fail(err)
			}
			m.Kernels = append(m.Kernels, p.kernel)
			inBody = false
		case inBody:
			if err := p.statement(line); err != nil {
				return fail(err)
			}
		case line == "{":
			if err := p.begin(header); err != nil {
				return fail(err)
			}
			inBody, header = true, ""
		case header != "" || strings.Contains(line, ".entry"):
			header += " " + line
		case strings.HasPrefix(line, ".extern .shared") && strings.HasSuffix(line, "[];"):
			fields := strings.Fields(line)
			p.externs[strings.TrimSuffix(fields[len(fields)-1], "[];")] = true
		default:
			return fail(fmt.Errorf("%w: %q", ErrUnsupported, line))
		}
	}
	if inBody || header != "" {
		return fail(errors.New("the file ends within a kernel"))
	}
	return m, nil
}

// maxParse is an upper bound on declarations, so that a file cannot exhaust memory.
const maxParse = 1 << 20

// declare assigns an offset to a variable such as ".shared .align 4 .b8 name[64];".
func declare(line string, at map[string]int, total *int) error {
	fields := strings.Fields(strings.TrimSuffix(line, ";"))
	if len(fields) == 0 {
		return errors.New("a declaration without a name")
	}
	name, dimension, isArray := strings.Cut(fields[len(fields)-1], "[")
	size, err := 0, error(nil)
	align := 1
	for i, f := range fields {
		if width := widths[strings.TrimPrefix(f, ".")]; width > 0 {
			align, size = max(align, width), width
		}
		if f == ".align" && i+1 < len(fields) {
			if align, err = strconv.Atoi(fields[i+1]); err != nil {
				return err
			}
		}
	}
	if isArray {
		n, err := strconv.Atoi(strings.TrimSuffix(dimension, "]"))
		if err != nil {
			return err
		}
		if n < 0 || n > maxParse {
			return fmt.Errorf("%q has %d elements", name, n)
		}
		size *= n
	}
	if align < 1 || align > 256 || align&(align-1) != 0 {
		return fmt.Errorf("an alignment of %d", align)
	}
	*total = (*total + align - 1) &^ (align - 1)
	at[name] = *total
	if *total += size; *total > maxParse {
		return fmt.Errorf("more than %d bytes of variables", maxParse)
	}
	return nil
}

// widths are the sizes of types in bytes.
var widths = map[string]int{
	"b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
	"b64": 8, "u64": 8, "s64": 8, "f64": 8,
}

// begin starts a kernel, given the text before its body.
func (p *parser) begin(header string) error {
	_, rest, found := strings.Cut(header, ".entry")
	name, list, open := strings.Cut(rest, "(")
	list, after, closed := strings.Cut(list, ")")
	if !found || !open || !closed {
		return fmt.Errorf("%w: %q", ErrUnsupported, header)
	}
	p.kernel = &Kernel{Name: strings.TrimSpace(name)}
	for _, word := range strings.Fields(after) {
		if strings.HasPrefix(word, ".") && word != ".maxntid" && word != ".minnctapersm" {
			return fmt.Errorf("%w: %q", ErrUnsupported, word)
		}
	}
	p.names, p.labels, p.immediate = map[string]int32{}, map[string]int{}, map[uint64]int32{}
	p.symbols = map[string]uint64{}
	offsets := map[string]int{}
	for _, text := range strings.Split(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if err := declare(text, offsets, &p.kernel.ParamBytes); err != nil {
			return err
		}
		fields := strings.Fields(text)
		name, _, _ := strings.Cut(fields[len(fields)-1], "[")
		at := offsets[name]
		p.symbols[name] = uint64(at)
		p.kernel.Params = append(p.kernel.Params, Param{Size: p.kernel.ParamBytes - at, Offset: at})
	}
	for i, s := range specials {
		p.kernel.special[i] = p.register(s)
	}
	return nil
}

// register returns the index of a register.
func (p *parser) register(name string) int32 {
	r, ok := p.names[name]
	if !ok {
		r = int32(p.kernel.registers)
		p.names[name] = r
		p.kernel.registers++
	}
	return r
}

// constant returns a register with a constant value.
func (p *parser) constant(v uint64) int32 {
	r, ok := p.immediate[v]
	if !ok {
		r = int32(p.kernel.registers)
		p.immediate[v] = r
		p.kernel.registers++
		p.kernel.constants = append(p.kernel.constants, constant{r, v})
	}
	return r
}

// operand returns the register of a source operand of a width in bytes.
func (p *parser) operand(text string, width int) (int32, error) {
	if strings.HasPrefix(text, "%") || p.externs[text] {
		return p.register(text), nil
	}
	if at, ok := p.symbols[text]; ok {
		return p.constant(at), nil
	}
	v, err := number(text)
	if err != nil {
		return 0, err
	}
	if width < 8 {
		v &= 1<<(8*max(width, 1)) - 1
	}
	return p.constant(v), nil
}

// number reads an immediate.
func number(text string) (uint64, error) {
	if bits, ok := strings.CutPrefix(text, "0f"); ok {
		return strconv.ParseUint(bits, 16, 32)
	}
	if bits, ok := strings.CutPrefix(text, "0d"); ok {
		return strconv.ParseUint(bits, 16, 64)
	}
	if v, err := strconv.ParseInt(text, 0, 64); err == nil {
		return uint64(v), nil
	}
	return strconv.ParseUint(strings.TrimSuffix(text, "U"), 0, 64)
}

// statement reads one line of a body.
func (p *parser) statement(line string) error {
	k := p.kernel
	if label, ok := strings.CutSuffix(line, ":"); ok {
		p.labels[label] = len(k.code)
		return nil
	}
	if strings.HasPrefix(line, ".shared") {
		at := map[string]int{}
		if err := declare(line, at, &k.Shared); err != nil {
			return err
		}
		for name, offset := range at {
			p.symbols[name] = uint64(offset)
		}
		return nil
	}
	if scoped, ok := strings.CutPrefix(line, "{ .reg "); ok { // a register for one instruction
		_, scoped, _ = strings.Cut(scoped, ";")
		line = strings.TrimSpace(strings.TrimSuffix(scoped, "}"))
	}
	text, ok := strings.CutSuffix(line, ";")
	if !ok || strings.HasPrefix(line, ".") {
		return fmt.Errorf("%w: %q", ErrUnsupported, line)
	}
	in := instruction{line: p.line, predicate: -1}
	if guard, rest, ok := strings.Cut(text, " "); ok && strings.HasPrefix(guard, "@") {
		name, negate := strings.CutPrefix(guard[1:], "!")
		in.predicate, in.negate, text = p.register(name), negate, strings.TrimSpace(rest)
	}
	opcode, rest, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	if err := p.instruction(&in, strings.Split(opcode, "."), operands(rest)); err != nil {
		return fmt.Errorf("%s: %w", opcode, err)
	}
	k.code = append(k.code, in)
	return nil
}

// operands splits at commas outside of braces.
func operands(text string) (list []string) {
	depth, from := 0, 0
	for i, c := range text {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ',' && depth == 0:
			list = append(list, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	if last := strings.TrimSpace(text[from:]); last != "" {
		list = append(list, last)
	}
	return list
}

// vector splits "{a, b}". It returns any other text as the only element.
func vector(text string) []string {
	inner, ok := strings.CutPrefix(text, "{")
	if !ok {
		return []string{text}
	}
	return operands(strings.TrimSuffix(inner, "}"))
}

// instruction decodes one instruction from the parts of its opcode and its operands.
func (p *parser) instruction(in *instruction, op, args []string) error {
	wanted := func(n int) error {
		if len(args) != n {
			return fmt.Errorf("%d operands, want %d", len(args), n)
		}
		return nil
	}
	width := widths[op[len(op)-1]]
	switch op[0] {
	case "ret", "exit":
		in.kind = end
		return wanted(0)
	case "bra":
		in.kind = branch
		if err := wanted(1); err != nil {
			return err
		}
		in.label = args[0]
		return nil
	case "bar", "barrier":
		in.kind = barrier
		if len(args) != 1 || args[0] != "0" || in.predicate >= 0 {
			return fmt.Errorf("%w: a barrier with a number, or with a predicate", ErrUnsupported)
		}
		return nil
	case "mma":
		return p.multiply(in, strings.Join(op, "."), args)
	case "ld", "st":
		if err := wanted(2); err != nil {
			return err
		}
		if op[0] == "st" {
			in.kind = store
			args[0], args[1] = args[1], args[0]
		} else {
			in.kind = load
		}
		return p.access(in, op, args, width)
	case "atom", "red":
		return p.atomic(in, op, args, width)
	case "mov":
		if err := wanted(2); err != nil {
			return err
		}
		if v := vector(args[0]); len(v) == 2 {
			in.kind, in.size = unpack, uint8(width)
			in.dst[0], in.dst[1] = p.register(v[0]), p.register(v[1])
			args[0] = v[0]
		} else if v := vector(args[1]); len(v) == 2 {
			shift := uint(width * 4)
			in.f = func(a, b, _ uint64) uint64 { return a&(1<<shift-1) | b<<shift }
			args = []string{args[0], v[0], v[1]}
		}
	}
	if in.f == nil && in.kind == compute {
		f, n, err := arithmetic(op)
		if err != nil {
			return err
		}
		if err := wanted(n + 1); err != nil {
			return err
		}
		in.f = f
	}
	if in.kind == compute {
		if !strings.HasPrefix(args[0], "%") {
			return fmt.Errorf("the result is %q", args[0])
		}
		in.dst[0] = p.register(args[0])
	}
	for i, a := range args[1:] {
		r, err := p.operand(a, width)
		if err != nil {
			return err
		}
		in.src[i] = r
	}
	return nil
}

// multiply decodes the only supported matrix product.
func (p *parser) multiply(in *instruction, op string, args []string) error {
	if op != "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" || len(args) != 4 || in.predicate >= 0 {
		return fmt.Errorf("%w: another matrix product, or one with a predicate", ErrUnsupported)
	}
	in.kind = multiply
	for i, n := range [4]int{4, 4, 2, 4} {
		list := vector(args[i])
		if len(list) != n {
			return fmt.Errorf("%d registers, want %d", len(list), n)
		}
		for j, name := range list {
			r, err := p.operand(name, 4)
			if err != nil {
				return err
			}
			if i == 0 {
				in.dst[j] = r
			} else {
				in.tiles = append(in.tiles, r)
			}
		}
	}
	return nil
}

// access decodes a load or a store; the address is the second operand.
func (p *parser) access(in *instruction, op, args []string, width int) error {
	where := ""
	for _, part := range op[1:max(1, len(op)-1)] {
		switch part {
		case "global", "shared", "param":
			where = part
		case "nc", "v2", "v4":
		default:
			return fmt.Errorf("%w: %q", ErrUnsupported, part)
		}
	}
	at, ok := map[string]space{"global": global, "shared": shared, "param": param}[where]
	if !ok || width == 0 || at == param && in.kind == store {
		return fmt.Errorf("%w: a state space %q", ErrUnsupported, where)
	}
	in.space, in.size = at, uint8(width)
	if at == shared && width < 4 {
		return fmt.Errorf("%w: shared memory in units below four bytes", ErrUnsupported)
	}
	in.signed = strings.HasPrefix(op[len(op)-1], "s")
	list := vector(args[0])
	if len(list) > 4 {
		return fmt.Errorf("a vector of %d", len(list))
	}
	in.many = uint8(len(list))
	for i, name := range list {
		r, err := p.operand(name, width)
		if err != nil {
			return err
		}
		in.dst[i] = r
	}
	return p.address(in, args[1])
}

// atomic decodes atom and red in global memory.
func (p *parser) atomic(in *instruction, op, args []string, width int) error {
	t := op[len(op)-1]
	if strings.HasPrefix(t, "f") {
		return fmt.Errorf("%w: floating-point atomics have no order, so that the bits of their sum are undefined", ErrUnsupported)
	}
	if op[0] == "atom" && len(args) == 3 {
		in.dst[0] = p.register(args[0])
		args = args[1:]
	} else if op[0] == "red" && len(args) == 2 {
		in.dst[0] = p.register("%discarded")
	} else {
		return fmt.Errorf("%w: %d operands", ErrUnsupported, len(args))
	}
	if len(op) != 4 || op[1] != "global" || op[2] != "add" && op[2] != "min" && op[2] != "max" || width < 4 {
		return fmt.Errorf("%w: %s", ErrUnsupported, strings.Join(op, "."))
	}
	in.f, _ = integers(op[2], 8*width, t[0] == 's', nil)
	in.kind, in.size, in.many = atomic, uint8(width), 1
	var err error
	if in.src[1], err = p.operand(args[1], width); err != nil {
		return err
	}
	return p.address(in, args[0])
}

// address decodes "[register+offset]".
func (p *parser) address(in *instruction, text string) error {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	base, offset, _ := strings.Cut(text, "+")
	if offset != "" {
		v, err := strconv.ParseInt(offset, 0, 64)
		if err != nil {
			return err
		}
		in.offset = uint64(v)
	}
	r, err := p.operand(base, 8)
	in.src[0] = r
	return err
}

// finish resolves the labels of a kernel, and places its dynamic shared memory.
func (p *parser) finish() error {
	k := p.kernel
	if len(k.code) == 0 || k.code[len(k.code)-1].kind != end && k.code[len(k.code)-1].kind != branch {
		return fmt.Errorf("kernel %s does not end", k.Name)
	}
	for i := range k.code {
		in := &k.code[i]
		if in.kind != branch {
			continue
		}
		at, ok := p.labels[in.label]
		if !ok || at == len(k.code) {
			return fmt.Errorf("line %d: no instruction at label %q", in.line, in.label)
		}
		in.target = at
	}
	for name := range p.externs { // after the variables that the kernel declares itself
		if r, used := p.names[name]; used {
			k.constants = append(k.constants, constant{r, uint64(k.Shared+15) &^ 15})
			k.dynamic = true
		}
	}
	if k.dynamic {
		k.Shared = (k.Shared + 15) &^ 15
	}
	k.covered = make([]bool, len(k.code))
	return nil
}
