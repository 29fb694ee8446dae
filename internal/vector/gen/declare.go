package main

import (
	"bytes"
	"fmt"
	"strings"
)

// whole are the kernels that have no tails, of both sets.
var whole = []string{"tile%s(" + productArgs + ")", "row%s(" + productArgs + ")", "dropout%s(" + dropoutArgs + ")", "draws%s(" + drawsArgs + ")"}

const transposeBlocks = "transposeAVX2(dst *float32, ldd int, src *float32, lds, rows, cols int)"

// signature is a kernel without its name, with ok as the last result.
func (k kernel) signature(ok bool) string {
	results := k.results
	if ok {
		if results != "" {
			results += ", "
		}
		results += "ok bool"
	}
	if results != "" {
		results = " (" + results + ")"
	}
	return "(" + k.args + ")" + results
}

// declarations returns the Go side on amd64: the functions, and for each a method
// of Set that calls the one of the set, and says whether there is one.
func declarations() []byte {
	var out bytes.Buffer
	out.WriteString(header + buildTag + "package vector\n")
	for _, k := range kernels {
		for _, s := range []set{avx512, avx2} {
			fmt.Fprintf(&out, "\n//go:noescape\nfunc %s%s%s\n", k.name, s.suffix, k.signature(false))
		}
		fmt.Fprintf(&out, "\nfunc (s Set) %s%s {\n\tswitch s {\n", k.name, k.signature(true))
		in, results, _ := k.parameters()
		var args, names []string
		for _, p := range in {
			args = append(args, p.name)
		}
		for _, p := range results {
			names = append(names, p.name)
		}
		for _, s := range []set{avx512, avx2} {
			call := fmt.Sprintf("%s%s(%s)", k.name, s.suffix, strings.Join(args, ", "))
			if len(names) > 0 {
				call = strings.Join(names, ", ") + " = " + call
			}
			fmt.Fprintf(&out, "\tcase %s:\n\t\t%s\n", s.name, call)
		}
		fmt.Fprintf(&out, "\tdefault:\n\t\treturn %s\n\t}\n\treturn %s\n}\n",
			strings.Join(append(names, "false"), ", "), strings.Join(append(names, "true"), ", "))
	}
	for _, f := range whole {
		for _, s := range []set{avx512, avx2} {
			fmt.Fprintf(&out, "\n//go:noescape\nfunc "+f+"\n", s.suffix)
		}
	}
	fmt.Fprintf(&out, "\n//go:noescape\nfunc %s\n", transposeBlocks)
	return out.Bytes()
}

// absent returns the Go side where there is no assembly.
func absent() []byte {
	var out bytes.Buffer
	out.WriteString(header + "//go:build !amd64 || purego\n\npackage vector\n\n// There is no assembly here.\n")
	for _, k := range kernels {
		fmt.Fprintf(&out, "\nfunc (Set) %s%s { return }\n", k.name, k.signature(true))
	}
	return out.Bytes()
}
