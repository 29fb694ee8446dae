// Package fault holds the suite that breaks a step at every point where it can
// break, and demands that nothing is left and that the next step works (L8).
package fault
