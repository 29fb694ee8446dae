//go:build !unix && !js

package main

import "os"

// passedOn are the signals that are passed to the processes of a job.
var passedOn = []os.Signal{os.Interrupt}
