package memlog

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/weir-ml/weir/internal/formats/jsonfile"
)

func expected(column int, what string, found any) *Error {
	return &Error{Column: column, Text: fmt.Sprintf("expected %s, found %v", what, found)}
}

// short returns a value for an error message: its beginning, quoted if it contains unprintable
// characters.
func short(raw []byte) string {
	if cut, more := begin(raw, 40); !bytes.ContainsFunc(cut, unprintable) {
		return string(cut) + more
	}
	cut, more := begin(raw, 24)
	return strconv.Quote(string(cut)) + more
}

// begin returns the first bytes of a text, at most most of them, cut between characters. more is an
// ellipsis if the text is longer, and otherwise empty.
func begin(raw []byte, most int) (cut []byte, more string) {
	if len(raw) <= most {
		return raw, ""
	}
	for least := most - utf8.UTFMax; most > least && !utf8.RuneStart(raw[most]); {
		most--
	}
	return raw[:most], "..."
}

func unprintable(c rune) bool { return c == utf8.RuneError || !unicode.IsPrint(c) && c != '\t' }

// member is a key of an object with its value, which is not yet interpreted.
type member struct {
	key    string
	column int // of the value
	raw    []byte
}

// members splits the text of one object, which begins at a column of its line.
func members(text []byte, column int) ([]member, error) {
	if begin := bytes.TrimLeft(text, " \t\r"); !bytes.HasPrefix(begin, []byte("{")) {
		column += len(text) - len(begin)
		if end := bytes.IndexAny(begin, " {"); end > 0 {
			begin = begin[:end]
		}
		return nil, expected(column, "an object", short(begin))
	}
	all := make([]member, 0, 20)
	fault := jsonfile.Members(text, "the record", func(key string, offset int, value []byte) *jsonfile.Error {
		all = append(all, member{key, column + offset, value})
		return nil
	})
	if fault != nil {
		return nil, &Error{Column: column + fault.Offset, Text: fault.Text}
	}
	return all, nil
}
