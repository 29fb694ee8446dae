// Package simulate is for predicting a step: from the costs of its actions it computes the
// time of a plan by two clocks, its waits, and its bytes.
package simulate
