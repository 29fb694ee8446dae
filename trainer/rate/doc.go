// Package rate says what the learning rate of a step is.
package rate
