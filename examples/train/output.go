package main

import "io"

// output is what people read. It keeps the first error, so that a full disk
// behind a redirected output is noticed at the end.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return len(p), nil
	}
	n, err := o.Writer.Write(p)
	o.err = err
	return n, err
}
