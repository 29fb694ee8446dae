// Package check proves plans without knowing what made them: that they run exactly
// what they must, in an order that works on every rank and between ranks, and drop
// everything once, after its last use.
package check
