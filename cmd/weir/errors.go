package main

import (
	_ "embed"
	"strings"
)

// errorTable has a paragraph for each sentinel of the library: its name and package, its text, the
// cause, and the fix.
//
//go:embed errors.txt
var errorTable string

// explain returns the paragraphs of errors.txt for an error: by its name, with or without the
// package, or by a text that contains the sentinel's. For "errors" it returns all names.
func explain(text string) string {
	var found, names []string
	for paragraph := range strings.SplitSeq(strings.TrimSpace(errorTable), "\n\n") {
		name, rest, _ := strings.Cut(paragraph, ", package ")
		message := strings.Split(rest, "\n")[1]
		names = append(names, name)
		if _, short, _ := strings.Cut(name, "."); text == name || text == short || strings.Contains(text, message) {
			found = append(found, paragraph)
		}
	}
	if text == "errors" {
		return strings.Join(names, "\n")
	}
	return strings.Join(found, "\n\n")
}
