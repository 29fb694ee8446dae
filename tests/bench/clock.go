package main

import "time"

// clock is what times are taken by: the clock on the wall, or the time that the
// process has computed for. The second is for a machine that does other work too;
// with several threads it is the sum over them.
type clock func() time.Duration

var began = time.Now()

// wallTime returns the time since the program began.
func wallTime() time.Duration { return time.Since(began) }
