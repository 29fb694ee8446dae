package spelling

import "strings"

// Most is how many bytes of a word are compared.
const Most = 40

// Hint lists the names that there are, and says first which one the word may be meant to
// be: "did you mean leaks? There are log, plan and so on".
func Hint(word string, names []string) string {
	nearest, least := "", Most
	for _, name := range names {
		if d := distance(strings.ToLower(word[:min(len(word), Most)]), name); d < least {
			nearest, least = name, d
		}
	}
	hint := "there are "
	if least <= max(len(word), len(nearest))/2 { // or it is another word
		hint = "did you mean " + nearest + "? There are "
	}
	return hint + strings.Join(names, ", ")
}

// distance returns how many letters must be put in, taken out or changed to make one
// word of the other.
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
