// Package format is for exchanging plans with other programs: it reads and writes the two CSV
// forms of PyTorch's pipelining, the signed order list of Megatron and TransformerEngine, and
// a JSON form of Weir, as well as the text form of package schedule.
//
// [Read] finds out which form a file has, turns it into a plan, and keeps what it
// read: [File.WriteTo] gives the same bytes back, idle cells, old letters, quotes, a
// byte order mark and line ends included, and [File.Place] says where an action of the plan stands, so that
// a fault that check.Plan finds can be shown at its line and column. [Write]
// writes any plan; the same plan gives the same bytes.
//
// The forms do not say the same things:
//
//   - Text and JSON say everything, JSON the costs of a simulation as well.
//   - Compute has the computations alone, one line of cells for each rank:
//     2F0, 2I0, 2W0, 2B0, a joined pair as (0F7;7B3)OVERLAP_F_B, and an empty cell
//     where the rank is idle for a tick. Cells may be in double quotes, as spreadsheets
//     write them. Files of 2024 have other [Letters], which File.OldLetters tells.
//   - Comms has the transfers too (SEND_F, RECV_F, SEND_B, RECV_B), and UNSHARD,
//     RESHARD, REDUCE_GRAD and QUANTIZE, which PyTorch does not know. PyTorch waits for its sends at the end of a step, and
//     has no word for a wait in between: a plan's waits are left out, and a plan that
//     was read has none. A file without any transfer is refused where neighbours are
//     on two ranks.
//   - Order has a line for each rank: 1 is the next forward of its first stage, -1 the
//     next backward, -1.5 the next weight gradient where that runs apart. Stage v·P + r
//     is number v + 1 of rank r. In brackets, as Python and JSON print lists, a list is
//     of a rank, whatever its lines, and a list of lists of the ranks in it. What does not fit is refused: another placement, joined
//     pairs, microbatches that do not ascend, frozen stages.
//
// Compute, Comms and Order say neither what dies where, nor which stages are frozen,
// nor what is a slice of a sequence; [Options] can. They do not say where stages
// live either: in the CSV forms a stage is on the rank whose line has it.
package format
