package main

import "fmt"

// split returns the text to train on and the last tenth, which is held out. Both
// must be longer than a microbatch.
func split(t *text, sequence int) (training, heldout []byte, err error) {
	at := len(t.bytes) - len(t.bytes)/10
	training, heldout = t.bytes[:at:at], t.bytes[at:]
	if len(heldout) <= sequence {
		return nil, nil, fmt.Errorf("-seq %d is longer than the data: %s has %d bytes and the held-out tenth is %d: take a smaller -seq or more text",
			sequence, t.name, len(t.bytes), len(heldout))
	}
	return training, heldout, nil
}
