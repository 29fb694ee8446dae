// Package check is for proving a plan, whoever made it: that it runs exactly the actions it
// must, in an order that works on every rank and between ranks, and drops everything once,
// after its last use.
package check
