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

// Value is one value of a file: a number, or a reference to a text or a container of its Data.
type Value struct {
	Kind Kind
	Ref  uint32 // of a text or a container; references to one object are equal
	Bits int64  // of a Boolean, an Integer, or a Float in its 64 bits
}

// Text returns the text of a value that is one.
func (d *Data) Text(v Value) string { return d.texts[v.Ref] }

// Items returns the elements of a List or a Tuple, and none of any other value. The slice is lent.
func (d *Data) Items(v Value) []Value {
	if v.Kind != List && v.Kind != Tuple {
		return nil
	}
	return d.containers[v.Ref]
}

// Pairs iterates over the keys and values of a Dict, and over none of any other value. A key that is
// a number is in decimal, and one that is neither a text nor a number is empty.
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
