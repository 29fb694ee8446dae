package main

import "time"

// clock measures time: wall-clock time, or the processor time of the process. The second is for
// a machine that does other work too; with several threads it is their sum.
type clock func() time.Duration

var began = time.Now()

// wallTime returns the time since the program began.
func wallTime() time.Duration { return time.Since(began) }
