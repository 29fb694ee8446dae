package main

import (
	"slices"
	"strings"
)

// knob is a flag that only some plans have.
type knob struct {
	flag  string
	plans []string // depth-first the last
	one   bool     // with depth-first only on one rank
	many  bool     // with depth-first only on several ranks
}

var knobs = [...]knob{
	{flag: "group", plans: []string{"interleaved", "zb1p", "grouped-interleave", "depth-first"}, one: true},
	{flag: "cap", plans: []string{"zb-h2", "depth-first"}, many: true},
	{flag: "slices", plans: []string{"seq1f1b"}},
	{flag: "descending", plans: []string{"breadth-first"}},
}

// fits reports whether a plan on so many ranks has the knob.
func (k *knob) fits(plan string, ranks int) bool {
	if plan == "depth-first" && (k.one && ranks > 1 || k.many && ranks == 1) {
		return false
	}
	return slices.Contains(k.plans, plan)
}

// goesWith says in words what the knob goes with.
func (k *knob) goesWith() string {
	words := "-plan " + list(k.plans)
	switch {
	case k.one:
		words += " on one rank"
	case k.many:
		words += " on several ranks"
	}
	return words
}

// list writes words with or before the last one.
func list(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
