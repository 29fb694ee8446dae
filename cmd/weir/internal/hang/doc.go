// Package hang finds out why a job hangs: which ranks stopped, which ranks wait for them, and the
// position of each rank in the schedule.
//
// A [Wait] says that one rank cannot continue before another one does something. [Dumps] finds the waits in the
// dumps of PyTorch's flight recorder, and [Live] takes them from the statuses of the ranks of a running Weir
// job. One rule judges both: a rank is to blame if others wait for it, directly or through others, and it waits
// for none itself. Ranks that wait for each other in a cycle are to blame together, unless a mismatch or the
// plan shows which of them is at fault.
//
// In a dump, a rank waits in its earliest pending operation that can hold it up. A transfer waits for its peer,
// even if the peer has issued the other end, unless the transfer is a receive whose send has completed. A batch
// waits for the peers of all its transfers whose other end has not been issued. A receive from any rank waits
// for all members, and so does a batch if the dump contains only its end. A collective waits for the members
// that have not issued it: those whose first pending number in the group is lower, and those that have none
// pending but have not completed it. If others have completed a member's pending collective, the member waits
// for none.
//
// A finding is certain if the dumps prove it: the awaited rank left a dump, and the awaited operation
// is not in it. It is likely if it depends on a missing or empty dump, on clocks, on a send, which
// need not hold up its rank, on an operation that most members have not issued, or on an end that the
// recorder did not see. If the dumps fit a plan ([Fit]), a rank's operations determine its
// [Position] in its program, which shows exactly which message it waits for.
//
// The package has no state and changes nothing. Its reports are values, and the same dumps yield the
// same report.
package hang
