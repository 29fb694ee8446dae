// Package timing is for laying what a run took beside what its plan would take: it turns traces
// into costs of the stages and of the links, and says which rank or link holds the others up.
//
// An action can begin when its rank is free and its input has been made. The rest follows from this,
// for traces with transfers in them and without:
//
//   - A span that begins before its input has been made has a wait in it. The wait is no part of
//     the action's cost.
//   - The time of a message is its end minus the later of two starts, that of the send and that
//     of the receive; the rest of a receive is waiting. Without spans of transfers the send begins
//     when the input has been made, the receive when the rank is free, and it ends when the action begins.
//   - A rank that has all that it needs and still does not begin loses the time in its own
//     program. The median of these gaps is part of the costs, because the next step has them too.
package timing
