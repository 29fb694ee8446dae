package explain

import (
	_ "embed"
	"strings"
	"unicode"
)

// errorTable has a paragraph for each sentinel of the library: its name and package, its text, the
// cause, and the fix.
//
//go:embed errors.txt
var errorTable string

// sentinel is a paragraph of errors.txt.
type sentinel struct{ name, message, paragraph string }

// sentinels returns the paragraphs of errors.txt.
func sentinels() (all []sentinel) {
	for paragraph := range strings.SplitSeq(strings.TrimSpace(errorTable), "\n\n") {
		name, rest, _ := strings.Cut(paragraph, ", package ")
		all = append(all, sentinel{name, strings.Split(rest, "\n")[1], paragraph})
	}
	return all
}

// Names returns the names of all errors, each with its package.
func Names() (names []string) {
	for _, e := range sentinels() {
		names = append(names, e.name)
	}
	return names
}

// Error returns the causes and fixes of the errors that text names, with or without the package, or whose own text
// it contains. It returns "" if there is no such error.
func Error(text string) string {
	var found []string
	for _, e := range sentinels() {
		if _, short, _ := strings.Cut(e.name, "."); text == e.name || text == short || strings.Contains(text, e.message) {
			found = append(found, e.paragraph)
		}
	}
	return strings.Join(found, "\n\n")
}

// Excerpt returns the causes and fixes of the errors that share the longest run of words with an excerpt of an
// error's text. The run must be all of the error's own text, which follows its package, all of an excerpt of at
// least two words, or at least three words.
func Excerpt(excerpt string) string {
	words := func(text string) []string {
		return strings.FieldsFunc(strings.ToLower(text), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsNumber(c) })
	}
	given, longest := words(excerpt), 1
	var found []string
	for _, e := range sentinels() {
		if pkg, text, named := strings.Cut(e.message, ": "); named && !strings.Contains(pkg, " ") {
			e.message = text
		}
		own, run := words(e.message), 0
		for i := range given {
			for j := range own {
				n := 0
				for i+n < len(given) && j+n < len(own) && given[i+n] == own[j+n] {
					n++
				}
				run = max(run, n)
			}
		}
		if run < longest || run < len(own) && run < min(3, max(2, len(given))) {
			continue
		}
		if run > longest {
			found, longest = nil, run
		}
		found = append(found, e.paragraph)
	}
	return strings.Join(found, "\n\n")
}
