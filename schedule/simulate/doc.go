// Package simulate says what a plan costs, given the costs of its actions: time by two
// clocks, waits, and bytes.
package simulate
