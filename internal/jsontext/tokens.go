package jsontext

import (
	"encoding/json"
	"fmt"
	"strings"
)

// The syntax of JSON, with faults in the words of encoding/json.

// next goes to the next token and returns its first byte, 0 after a fault.
func (d *Reader) next() byte {
	if d.fault != nil {
		return 0
	}
	if d.skip(); d.at == len(d.text) {
		d.invalid("")
		return 0
	}
	return d.text[d.at]
}

// skip goes to the next token, or to the end.
func (d *Reader) skip() {
	for d.sees(" \t\r\n") {
		d.at++
	}
	d.start = d.at
}

// sees reports whether the next byte is one of these.
func (d *Reader) sees(these string) bool {
	return d.at < len(d.text) && strings.IndexByte(these, d.text[d.at]) >= 0
}

// invalid is the fault of the next byte.
func (d *Reader) invalid(where string) {
	if d.fault != nil {
		return
	}
	if d.start = d.at; d.at == len(d.text) {
		d.fail("the end of the text", "expected more of %s", d.what)
		return
	}
	d.fail("", "invalid character %s %s", quoted(d.text[d.at]), where)
}

// quoted returns a byte between single quotation marks.
func quoted(c byte) string {
	if c == '"' {
		return `'"'`
	}
	return fmt.Sprintf("%q", rune(c))
}

// separated takes the comma between two values, and reports false where the end of an
// object or of a list stands in its place.
func (d *Reader) separated(end byte, where string) bool {
	switch d.next() {
	case end:
		return false
	case ',':
		d.at++
	default:
		d.invalid(where)
	}
	return true
}

// word takes a string.
func (d *Reader) word() string {
	begin, plain := d.at, true
	for d.at++; d.at < len(d.text); d.at++ {
		switch c := d.text[d.at]; {
		case c == '"':
			d.at++
			if plain {
				return string(d.text[begin+1 : d.at-1])
			}
			var word string
			_ = json.Unmarshal(d.text[begin:d.at], &word) // It is one.
			return word
		case c == '\\':
			if plain = false; !d.escape() {
				return ""
			}
		case c < ' ':
			d.invalid("in string literal")
			return ""
		case c > '~':
			plain = false
		}
	}
	d.invalid("")
	return ""
}

// escape goes to the last byte of an escape.
func (d *Reader) escape() bool {
	d.at++
	if d.sees(`"\/bfnrt`) {
		return true
	}
	if !d.sees("u") {
		d.invalid("in string escape code")
		return false
	}
	for range 4 {
		if d.at++; !d.sees("0123456789abcdefABCDEF") {
			d.invalid("in \\u hexadecimal character escape")
			return false
		}
	}
	return true
}

// number takes a number: nothing where none begins.
func (d *Reader) number() string {
	begin := d.at
	if d.sees("-") {
		d.at++
	}
	if d.sees("0") {
		d.at++
	} else {
		d.digits("in numeric literal")
	}
	if d.sees(".") {
		d.at++
		d.digits("after decimal point in numeric literal")
	}
	if d.sees("eE") {
		if d.at++; d.sees("+-") {
			d.at++
		}
		d.digits("in exponent of numeric literal")
	}
	return string(d.text[begin:d.at])
}

// digits takes one digit or more.
func (d *Reader) digits(where string) {
	if !d.sees("0123456789") {
		d.invalid(where)
	}
	for d.at < len(d.text) && '0' <= d.text[d.at] && d.text[d.at] <= '9' {
		d.at++
	}
}

// literal takes a word of the language.
func (d *Reader) literal(word string) {
	for _, c := range []byte(word) {
		if !d.sees(string(c)) {
			d.invalid(fmt.Sprintf("in literal %s (expecting %s)", word, quoted(c)))
			return
		}
		d.at++
	}
}
