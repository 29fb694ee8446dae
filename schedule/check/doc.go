// Package check proves plans, independently of the rules that generate them. A valid plan runs
// exactly the required actions, in an order that respects all dependencies on and between ranks,
// and drops everything once, after its last use.
//
// [Links] proves a plan for links that hold a number of messages, [Plan] for links that hold any number,
// and [ProveBytes] for links that hold bytes. They return an [*Error] with a [Fault] for each mistake.
// [Prove] also returns a [Proof], whose methods return the link capacities that the plan needs.
package check
