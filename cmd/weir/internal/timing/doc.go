// Package timing compares the times of a run with the simulated times of its plan. It derives the
// costs of stages and links from traces, and finds the rank or link that delays the others.
//
// An action can begin when its rank is free and its input has been computed. This has the following
// consequences, for traces with and without transfers:
//
//   - A span that begins before its input has been computed includes a wait. The wait is not part
//     of the action's cost.
//   - The time of a message is its end minus the later of the starts of its send and its receive;
//     the rest of a receive is waiting. Without spans of transfers, the send begins when the input
//     has been computed, the receive begins when the rank is free, and the message ends when the
//     action begins.
//   - If an action could begin but does not, its rank loses that time in its own program. The
//     median of these gaps is included in the costs, because later steps will have such gaps, too.
package timing
