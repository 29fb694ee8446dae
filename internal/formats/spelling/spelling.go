package spelling

import "strings"

// MaxLength is the largest number of bytes of a word that are compared.
const MaxLength = 40

// Hint lists the names, preceded by a suggestion if one of them resembles the word: "did you mean
// leaks? There are log, plan and so on".
func Hint(word string, names []string) string {
	nearest, least := "", MaxLength
	for _, name := range names {
		if d := distance(strings.ToLower(word[:min(len(word), MaxLength)]), name); d < least {
			nearest, least = name, d
		}
	}
	hint := "there are "
	if least <= max(len(word), len(nearest))/2 { // otherwise it is a different word
		hint = "did you mean " + nearest + "? There are "
	}
	return hint + strings.Join(names, ", ")
}

// distance returns the least number of bytes to insert, delete or replace to turn a into b: the
// Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the beginning of a to each beginning of b
	for k := range row {
		row[k] = k
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for k := range len(b) {
			changed := diagonal
			if a[i] != b[k] {
				changed++
			}
			diagonal = row[k+1]
			row[k+1] = min(changed, row[k]+1, row[k+1]+1)
		}
	}
	return row[len(b)]
}
