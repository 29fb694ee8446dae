package pickle

import (
	"iter"
	"strconv"
)

// Kind is the type of a value.
type Kind uint8

// The kinds of values. The zero value of Value is Null.
const (
	Null Kind = iota
	Boolean
	Integer
	Float
	Text
	List
	Dict
	Tuple
)

// String returns the kind for an error message.
func (k Kind) String() string {
	return [...]string{"nothing", "a truth value", "a number", "a fraction", "a text", "a list", "a dict", "a tuple"}[k]
}

// Value is one value of a file: a number, or a reference to a text or a container of the file's
// Data.
type Value struct {
	Kind Kind
	Ref  uint32 // reference to a text or a container; references to the same object are equal
	Bits int64  // value of a Boolean or an Integer, or the 64 bits of a Float
}

// Text returns the text that a value refers to. The value must be a text.
func (d *Data) Text(v Value) string { return d.texts[v.Ref] }

// Items returns the elements of a List or a Tuple, or none for any other value. The slice belongs
// to d and must not be modified.
func (d *Data) Items(v Value) []Value {
	if v.Kind != List && v.Kind != Tuple {
		return nil
	}
	return d.containers[v.Ref]
}

// Pairs iterates over the keys and values of a Dict, or over nothing for any other value. A key that
// is an Integer is given in decimal; one that is neither a Text nor an Integer is given as "".
func (d *Data) Pairs(v Value) iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		if v.Kind != Dict {
			return
		}
		items := d.containers[v.Ref]
		for i := 0; i+1 < len(items); i += 2 {
			key := ""
			switch items[i].Kind {
			case Text:
				key = d.Text(items[i])
			case Integer:
				key = strconv.FormatInt(items[i].Bits, 10)
			}
			if !yield(key, items[i+1]) {
				return
			}
		}
	}
}

// Top returns the value that the file holds.
func (d *Data) Top() Value { return d.top }
