package fit

import (
	"regexp"
	"slices"
	"strings"
)

var (
	assignment = regexp.MustCompile(`^(?:export +|local +)?([A-Za-z_]\w*)\+?=`)
	expression = regexp.MustCompile(`^[(\[]{1,8}\s?\d`) // of a list in Python
	loop       = regexp.MustCompile(`^for +([A-Za-z_]\w*) +in +`)
	variable   = regexp.MustCompile(`\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*|\d+)(?::?[-=]([^}]*))?\})`)
)

// script collects the flags in a text: a command line, a shell script, a list of arguments in Python, or a test's
// YAML file. It does not run the text; it reads these constructs, wherever they stand:
//
//	--num-layers 32, --num-layers=32    a flag and its values, up to the next flag
//	--num-layers: 32                    the same in YAML
//	--swiglu \                          a line that goes on
//	# text                              a comment, to the end of the line
//	ARGS="--bf16 --num-layers $N"       a quoted text with flags, read like the text around it
//	N=32, export N=32, local N+=32      a value of a variable
//	for N in 1 2 4; do                  several values of a variable
//	$N, ${N}, ${N:-8}, ${N-8}, ${1:-8}  the value of a variable, or its default
//	["--layers", f"{N}"]                a list of strings in Python; {N} is a variable
//	([0]*3+[1]*1)*8                     an expression in Python: one word
//
// Any of ; & | ) ] } ends the values of a flag, and so does the end of a line on which a value was given.
type script struct {
	flags     map[string][][]string // the values of each use of a flag
	variables map[string][]string   // the distinct values that the text assigns
	flag      string                // the flag that the next words belong to
}

const (
	maxNested   = 8    // depth of quoted texts within each other
	maxValues   = 8    // values of a variable or a flag that are kept
	maxExpanded = 1024 // bytes of a value, before its variables are replaced and after
)

// read reads a text. It also reads quoted texts that contain flags, nested at most maxNested deep.
func (s *script) read(text string, depth int) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for text != "" {
		switch c := text[0]; {
		case strings.HasPrefix(text, "\\\n"): // The line goes on.
			text = text[2:]
			continue
		case c == '\n':
			s.end()
			text = text[1:]
			continue
		case isSeparator(c), opens(c) && !expression.MatchString(text):
			text = text[1:]
			continue
		case c == '#':
			_, text, _ = strings.Cut(text, "\n")
			s.flag = ""
			continue
		case endsValues(c):
			s.flag, text = "", text[1:]
			continue
		}
		if name := assignment.FindStringSubmatch(text); name != nil {
			s.flag, text = "", text[len(name[0]):]
			if text == "" || strings.IndexByte(" \t\r\n(", text[0]) >= 0 {
				continue
			}
			word, quoted, rest := next(text)
			if text = rest; strings.Contains(word, "--") && quoted && depth < maxNested {
				s.read(word, depth+1)
				s.flag = ""
			} else {
				s.assign(name[1], word)
			}
			continue
		}
		if name := loop.FindStringSubmatch(text); name != nil { // The words of its list follow.
			s.flag, text = "", text[len(name[0]):]
			list, _, _ := strings.Cut(text[:min(len(text), maxExpanded)], "\n")
			list, _, _ = strings.Cut(list, ";")
			for word := range strings.FieldsSeq(list) {
				s.assign(name[1], strings.Trim(word, `"'`))
			}
			continue
		}
		formatted := strings.HasPrefix(text, `f"`) || strings.HasPrefix(text, "f'") // a Python string with variables
		if formatted {
			text = text[1:]
		}
		word, quoted, rest := next(text)
		if formatted {
			word = strings.ReplaceAll(word, "{", "${")
		}
		if text = rest; quoted && strings.Contains(word, "--") && depth < maxNested {
			s.read(word, depth+1)
			s.end()
			continue
		}
		s.word(word)
	}
}

func isSeparator(c byte) bool { return strings.IndexByte(" \t\r,", c) >= 0 }
func opens(c byte) bool       { return strings.IndexByte("([{", c) >= 0 }
func closes(c byte) bool      { return strings.IndexByte(")]}", c) >= 0 }
func endsValues(c byte) bool  { return closes(c) || strings.IndexByte(";&|", c) >= 0 }
func endsWord(c byte) bool    { return opens(c) || endsValues(c) || strings.IndexByte(" \t\r\n", c) >= 0 }
func isQuote(c byte) bool     { return strings.IndexByte("\"'`", c) >= 0 }

// assign adds a value to a variable, unless the variable already has this value or maxValues values.
func (s *script) assign(name, word string) {
	values, value := s.variables[name], s.expand(word)
	if len(value) > maxExpanded { // The variable is not replaced.
		value = "$" + name[:min(len(name), 40)]
	}
	if len(values) < maxValues && !slices.Contains(values, value) {
		s.variables[name] = append(values, value)
	}
}

// end ends the values of the last flag if it has any.
func (s *script) end() {
	if uses := s.flags[s.flag]; len(uses) > 0 && uses[len(uses)-1] != nil {
		s.flag = ""
	}
}

// next splits a text that does not begin with white space into its first word and the rest. It reports whether
// the whole word is in quotes.
func next(text string) (word string, quoted bool, rest string) {
	depth, open := 0, expression.MatchString(text)
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case isQuote(c):
			end := i + 1
			for end < len(text) && (text[end] != c || c == '"' && text[end-1] == '\\') {
				end++
			}
			if end < len(text) {
				quoted = i == 0
				b.WriteString(text[i+1 : end])
				i = end
			}
			continue
		case c == '$' && i+1 < len(text) && (text[i+1] == '{' || text[i+1] == '('), depth > 0 && (c == '{' || c == '('), open && (c == '(' || c == '['):
			if c == '$' {
				b.WriteByte(c)
				i++
			}
			depth++
		case depth > 0 && closes(c):
			depth--
		case depth > 0:
		case c == ',' && i > 0 && i+1 < len(text) && strings.IndexByte("\"'", text[i-1]) >= 0 && strings.IndexByte("\"'f", text[i+1]) >= 0: // of a list in Python
			return b.String(), quoted, text[i:]
		case strings.HasPrefix(text[i:], "\\\n"):
			i++
			continue
		case c == '\\' && i+1 < len(text):
			i++
		case endsWord(c):
			return b.String(), quoted && i > 0 && isQuote(text[i-1]), text[i:]
		}
		b.WriteByte(text[i])
	}
	return b.String(), quoted, ""
}

// word adds a word: a flag, or a value of the last flag.
func (s *script) word(word string) {
	name, is := strings.CutPrefix(strings.TrimRight(word, ","), "--")
	if !is {
		s.value(name)
		return
	}
	name, value, given := strings.Cut(name, "=")
	if s.flag = strings.TrimSuffix(name, ":"); s.flag != "" {
		s.flags[s.flag] = append(s.flags[s.flag], nil)
	}
	if given {
		s.value(value)
		s.flag = ""
	}
}

// value adds a value to the last flag.
func (s *script) value(word string) {
	if uses := s.flags[s.flag]; s.flag != "" && word != "" {
		uses[len(uses)-1] = append(uses[len(uses)-1], s.expand(word))
	}
}

// expand replaces the shell variables in a word with their values. It keeps a variable that has no value or
// several values, and appends the several values to it. If the word would become too long, it keeps all
// variables.
func (s *script) expand(word string) string {
	if len(word) > maxExpanded {
		return word
	}
	size := len(word)
	expanded := variable.ReplaceAllStringFunc(word, func(one string) string {
		if size > maxExpanded {
			return one
		}
		part, with := variable.FindStringSubmatch(one), one
		switch values := s.variables[part[1]+part[2]]; {
		case len(values) == 1:
			with = values[0]
		case len(values) > 1:
			with = one + " (" + strings.Join(values, " or ") + ")"
		case part[3] != "":
			with = part[3]
		}
		size += len(with) - len(one)
		return with
	})
	if size > maxExpanded {
		return word
	}
	return expanded
}
