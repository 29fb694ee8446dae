package mutation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// switchboard is the file that is added to each package. It reads the number of the active mutant,
// and the name of a file, to which it appends the number of each mutant that could have made a
// difference.
const switchboard = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutant, _ = strconv.Atoi(os.Getenv("MUTANT"))
	reached   = mutantReached()
	seen      []atomic.Bool
)

func mutantReached() *os.File {
	f, err := os.OpenFile(os.Getenv("REACHED"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return nil
	}
	seen = make([]atomic.Bool, 1<<16)
	return f
}

func mutantOn(n int) bool {
	if reached != nil {
		mutantSeen(n)
	}
	return n == mutant
}

func mutantSeen(n int) {
	if !seen[n].Swap(true) {
		reached.WriteString(strconv.Itoa(n) + "\n")
	}
}

func mutantLess[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64](n int, x T) T {
	if mutantOn(n) {
		return x - 1
	}
	return x
}

func mutantOr[T any](n int, x, y T) T {
	if mutantOn(n) {
		return y
	}
	return x
}
`

// Mutant is a change.
type Mutant struct {
	number int
	line   string // file:line
	Place  string // file:line, the kind of change, and the text
	folder string
}

// mutated puts all mutants of a file under the control of their numbers. It inserts text before and after a
// part of the source, so mutants can be nested, and line numbers do not change.
type mutated struct {
	name, folder string
	first        int             // number
	without      map[string]bool // lines whose mutants do not compile
	found        []Mutant
	files        *token.FileSet
	source       []byte
	before       map[int][]string // by offset, the outermost first
	behind       map[int][]string // by offset, the innermost first
}

func (m *mutated) file(path string) ([]byte, error) {
	m.files = token.NewFileSet()
	m.before, m.behind = map[int][]string{}, map[int][]string{}
	tree, err := parser.ParseFile(m.files, path, m.source, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR
		case *ast.ArrayType: // its length is a constant
			return false
		case *ast.BlockStmt:
			m.statements(n.List)
		case *ast.CaseClause:
			m.statements(n.Body)
		case *ast.CommClause:
			m.statements(n.Body)
		case *ast.BinaryExpr:
			m.expression(n)
		}
		return true
	})
	var out strings.Builder
	at := 0
	for offset := range len(m.source) + 1 {
		if m.before[offset] == nil && m.behind[offset] == nil {
			continue
		}
		out.Write(m.source[at:offset])
		for _, text := range slices.Concat(m.behind[offset], m.before[offset]) {
			out.WriteString(text)
		}
		at = offset
	}
	out.Write(m.source[at:])
	return []byte(out.String()), nil
}

// statements removes assignments and calls.
func (m *mutated) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
			m.add(s, "without", "if !mutantOn(%[1]d) { ", " }")
		case *ast.IncDecStmt, *ast.ExprStmt:
			if call, ok := s.(*ast.ExprStmt); ok && strings.HasPrefix(m.text(call), "panic(") {
				continue // without it a function would lack a return
			}
			m.add(s, "without", "if !mutantOn(%[1]d) { ", " }")
		}
	}
}

// expression changes conditions, bounds and differences.
func (m *mutated) expression(n *ast.BinaryExpr) {
	a, b := m.text(n.X), m.text(n.Y)
	equal := "mutantOn(%[1]d) && (" + a + ") == (" + b + ")"
	if !strings.ContainsAny(a+b, "(<") { // without calls, count it as reached only if the operands are equal
		equal = "(" + a + ") == (" + b + ") && mutantOn(%[1]d)"
	}
	switch n.Op {
	case token.EQL, token.NEQ:
		m.add(n, "not", "((", ") != mutantOn(%[1]d))")
	case token.LSS, token.GTR:
		m.add(n, "or equal", "(", " || "+equal+")")
		m.add(n, "not", "((", ") != mutantOn(%[1]d))")
	case token.LEQ, token.GEQ:
		m.add(n, "not equal", "(", " && !("+equal+"))")
		m.add(n, "not", "((", ") != mutantOn(%[1]d))")
	case token.LAND:
		m.add(n, "or for and", "(", " || mutantOn(%[1]d) && (("+a+") || ("+b+")))")
	case token.LOR:
		m.add(n, "and for or", "((", ") && (!mutantOn(%[1]d) || ("+a+") && ("+b+")))")
	case token.SUB:
		m.add(n, "swapped", "mutantOr(%[1]d, ", ", ("+b+") - ("+a+"))")
		m.add(n, "one less", "mutantLess(%[1]d, ", ")")
	case token.ADD:
		if !strings.Contains(a+b, `"`) && !strings.Contains(a+b, "`") {
			m.add(n, "one less", "mutantLess(%[1]d, ", ")")
		}
	}
}

// add adds a mutant of a node.
func (m *mutated) add(n ast.Node, kind, before, behind string) {
	at := m.files.Position(n.Pos())
	line := fmt.Sprintf("%s:%d", m.name, at.Line)
	if m.without[line] || strings.Contains(m.text(n), "\n") {
		return
	}
	number := m.first + len(m.found)
	m.found = append(m.found, Mutant{number, line, fmt.Sprintf("%s %s: %s", line, kind, m.text(n)), m.folder})
	end := m.files.Position(n.End()).Offset
	m.before[at.Offset] = append(m.before[at.Offset], strings.ReplaceAll(before, "%[1]d", fmt.Sprint(number)))
	m.behind[end] = slices.Insert(m.behind[end], 0, strings.ReplaceAll(behind, "%[1]d", fmt.Sprint(number)))
}

func (m *mutated) text(n ast.Node) string {
	return string(m.source[m.files.Position(n.Pos()).Offset:m.files.Position(n.End()).Offset])
}
