// Package check proves plans, independently of the rules that generate them. A valid plan runs
// exactly the required actions, in an order that respects all dependencies on and between ranks,
// and drops everything once, after its last use.
//
// [Links] proves a plan for links that hold a number of messages, [Plan] for links that hold any number,
// and [ProveBytes] for links that hold bytes. Their errors are an [*Error], which lists the faults of the plan
// as [Fault] values.
// [Prove] also returns a [Proof], whose methods return the link capacities that the plan needs.
package check
