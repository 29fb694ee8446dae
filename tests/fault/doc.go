// Package fault contains the suite that makes a step fail at every possible point, and requires
// that nothing is left and that the next step works (L8).
package fault
