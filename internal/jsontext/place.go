package jsontext

// Of returns a reader of a text of a file with this name, or of none, "".
func Of(text, name, what string) *Reader {
	return &Reader{text: []byte(text), name: name, what: what}
}

// Start returns where the token begins that was taken last, in bytes.
func (d *Reader) Start() int { return d.start }

// Ahead returns where the next token begins.
func (d *Reader) Ahead() int {
	d.next()
	return d.start
}

// Wrong is a fault at a place of the text, in bytes.
func (d *Reader) Wrong(place int, text string) {
	if d.fault == nil {
		d.start = place
		d.fail("", "%s", text)
	}
}
