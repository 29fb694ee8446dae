//go:build !unix && !js

package main

import "os"

// passedOn lists the signals that are forwarded to the processes of a job.
var passedOn = []os.Signal{os.Interrupt}
