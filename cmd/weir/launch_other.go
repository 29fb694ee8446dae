//go:build !unix

package main

import "os"

// passedOn are the signals that a job gets.
var passedOn = []os.Signal{os.Interrupt}
