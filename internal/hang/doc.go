// Package hang is for finding out why a job hangs: which ranks stopped, who waits for
// them, and where everyone is in the schedule.
//
// A [Wait] says that one rank cannot go on before another one does something. Both ways of
// asking come down to waits: [Dumps] finds them in the dumps of PyTorch's flight recorder,
// [Live] takes them from what the ranks of a running job of Weir say. One rule judges them: a
// rank is to blame if others wait for it, directly or through others, and it waits for none
// itself. Ranks that wait for each other in a circle are to blame together, unless
// a mismatch or the plan shows which of them is at fault.
//
// From a dump, a rank waits in the first of its pending operations that can hold it up, in the
// order in which it has issued them. A transfer waits for its peer, unless the peer has
// issued the other end. A collective waits for the members that have not issued it, which
// are those whose first pending number in the group is lower, and those that have none and have
// not completed it. A member that others have overtaken waits for none.
//
// A finding is certain if the dumps prove it: the rank that is waited for has left a dump,
// and what is awaited is not in it. It is likely if it rests on what is not there (a missing
// or empty dump), on clocks, or on a send, which need not hold its rank up. With a plan ([Place])
// the operations of a rank become a place in its program, and what it waits for is exact.
//
// The package reads and judges; it owns nothing and changes nothing. Its reports are values,
// the same for the same dumps.
package hang
