// Package check proves plans, independently of the rules that generate them. A valid plan runs
// exactly the required actions, in an order that respects all dependencies on and between ranks,
// and drops everything once, after its last use.
package check
