package jsontext

// Raw takes a value without a look at it, up to the bracket that closes it, and returns
// its text, which is the reader's.
func (d *Reader) Raw() []byte {
	depth, begin := 0, d.Ahead()
	for d.fault == nil {
		switch c := d.next(); c {
		case '"':
			d.word()
		case '{', '[':
			depth++
			d.at++
		case '}', ']':
			depth--
			d.at++
		case ',', ':':
			d.at++
		default:
			for d.at < len(d.text) && !d.sees(" \t\r\n,:[]{}\"") {
				d.at++
			}
		}
		if depth <= 0 {
			break
		}
	}
	return d.text[begin:d.at]
}
