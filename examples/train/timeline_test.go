package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// However the news of an exchange is late here or there, one that was quick both ways tells
// how far two clocks are apart.
func TestBehind(t *testing.T) {
	const apart = time.Hour
	var mine, theirs history
	for i := range mine.Began {
		at := time.Duration(i) * time.Second
		mine.Began[i], theirs.Began[i] = at, at+apart
		late := time.Duration((i*7)%16) * time.Millisecond
		mine.Ended[i], theirs.Ended[i] = at+time.Microsecond+late, at+apart+time.Microsecond+(15*time.Millisecond-late)
	}
	require.InDelta(t, apart, mine.behind(&theirs), float64(time.Microsecond))
	require.InDelta(t, -apart, theirs.behind(&mine), float64(time.Microsecond))
}
