package format

import (
	"slices"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

// Letters are PyTorch's letters for the backward in its CSV forms. Until 2024 they were BW
// for the full backward and B for the input gradient; today they are B and I.
type Letters uint8

// The letters.
const (
	AutoLetters   Letters = iota // old letters if BW appears, or W without I, otherwise today's
	TodaysLetters                // B and I
	OldLetters                   // BW and B
)

var lettersNames = [...]string{"auto", "today", "old"}

// String returns the name of the letters: auto, today or old.
func (l Letters) String() string {
	if int(l) < len(lettersNames) {
		return lettersNames[l]
	}
	return "letters(?)"
}

// ParseLetters is the inverse of String. It returns false for an unknown name.
func ParseLetters(name string) (Letters, bool) {
	i := slices.Index(lettersNames[:], name)
	return Letters(max(i, 0)), i >= 0
}

// of returns l or, if l is AutoLetters, the letters that it detects in a text. The only words with an I or a W that are
// not for backwards are the waits and QUANTIZE, which files from 2024 do not contain.
func (l Letters) of(text string) Letters {
	switch {
	case l != AutoLetters:
		return l
	case strings.Contains(text, "BW"), strings.Contains(text, "W") && !strings.Contains(text, "I"):
		return OldLetters
	}
	return TodaysLetters
}

// action reads an action written in these letters. The result old reports whether it would be read
// differently with today's letters.
func (l Letters) action(text string) (a schedule.Action, old bool, err error) {
	full := l == OldLetters && strings.Contains(text, "BW")
	if full {
		text = strings.Replace(text, "BW", "B", 1)
	}
	if a, err = schedule.ParseAction(text); err != nil {
		return 0, false, err
	}
	if l == OldLetters && a.Kind() == schedule.B && !full {
		return schedule.NewAction(schedule.I, a.Stage(), a.Microbatch()), true, nil
	}
	return a, full, nil
}
