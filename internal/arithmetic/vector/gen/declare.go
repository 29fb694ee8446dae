package main

import (
	"bytes"
	"fmt"
)

// whole lists the signatures of the functions that have no tails.
var whole = []string{
	"tile(set Set, " + productArgs + ")", "row(set Set, " + productArgs + ")", "dropout(set Set, " + dropoutArgs + ")", "draws(set Set, " + drawsArgs + ")",
	"transpose8(dst *float32, ldd int, src *float32, lds, rows, cols int)",
}

// declarations returns the Go declarations, each with the given body, which is empty if there is
// assembly.
func declarations(build, doc, before, body string) []byte {
	var out bytes.Buffer
	out.WriteString(header + build + "package vector\n" + doc)
	for _, k := range kernels {
		results := ""
		if k.results != "" {
			results = " (" + k.results + ")"
		}
		fmt.Fprintf(&out, "\n%sfunc %s(set Set, %s)%s%s\n", before, k.name, k.args, results, body)
	}
	for _, f := range whole {
		fmt.Fprintf(&out, "\n%sfunc %s%s\n", before, f, body)
	}
	return out.Bytes()
}
