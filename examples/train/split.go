package main

import (
	"fmt"

	"github.com/weir-ml/weir/trainer/corpus"
)

// split returns the text to train on and the last tenth, which is held out. Both
// must be longer than a microbatch.
func split(t *corpus.Text, sequence int) (training, heldout []byte, err error) {
	at := len(t.Bytes) - len(t.Bytes)/10
	training, heldout = t.Bytes[:at:at], t.Bytes[at:]
	if len(heldout) <= sequence {
		return nil, nil, fmt.Errorf("-seq %d is longer than the data: %s has %d bytes and the held-out tenth is %d: take a smaller -seq or more text",
			sequence, t.Name, len(t.Bytes), len(heldout))
	}
	return training, heldout, nil
}
