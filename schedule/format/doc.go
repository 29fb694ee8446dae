// Package format exchanges plans with other programs. It reads and writes the CSV forms
// of PyTorch's pipelining, the signed order list of Megatron and TransformerEngine, a JSON
// form of Weir, and the text form of package schedule.
//
// [Read] detects the form of a file, converts the file to a plan, and keeps the text.
// [File.WriteTo] writes the same bytes again, including idle cells, old letters, quotes, a byte order
// mark and line ends. [File.LineColumn] returns the location of an action of the plan, so that a fault that
// check.Plan finds can be shown at its line and column. [Write] writes a plan in any form that can express it;
// the same plan always yields the same bytes.
//
// The forms differ in what they can express:
//
//   - Text expresses everything, and JSON the costs of a simulation as well.
//   - Compute contains only computations, one line of cells for each rank: 2F0, 2I0, 2W0, 2B0,
//     (0F7;7B3)OVERLAP_F_B for a joined pair, and an empty cell if the rank is idle for a tick. Cells may
//     be in double quotes, as spreadsheets write them. Read accepts reductions with their waits as
//     well, as PyTorch lists them for GPipe and 1F1B. Files from 2024 use other [Letters]; see
//     File.OldLetters.
//   - Comms also contains transfers (SEND_F, RECV_F, SEND_B, RECV_B), and UNSHARD, RESHARD,
//     REDUCE_GRAD and QUANTIZE. PyTorch 2.15 requires a wait for each send and each reduction:
//     WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, which are the kinds WAIT_F, WAIT_B and
//     WAIT_REDUCE of a plan. [Write] adds missing waits as late as PyTorch allows, and omits ZERO_GRAD. Read refuses a
//     file without any transfers if successive stages are on different ranks.
//   - Comms26 is Comms for PyTorch 2.6 to 2.14, which has no waits: Write leaves out the waits of the plan.
//     Read takes a file with sends or reductions but without waits for this form.
//   - Order has a line for each rank: 1 is the next forward of its first stage, -1 the next
//     backward, and -1.5 the next weight gradient if it is separate. Stage v·P + r is
//     number v + 1 of rank r. The numbers may be in brackets, as Python and JSON print lists:
//     each list belongs to a rank, and may span several lines; one outer list may contain
//     them. Write refuses plans that do not fit: other placements, joined pairs, microbatches
//     that do not ascend, frozen stages.
//
// Compute, Comms, Comms26 and Order cannot say when a buffer is released. They cannot express frozen stages and slices
// of sequences either, but [Options] can. Nor can they express the placement: in the CSV forms, a stage is on the rank
// whose line contains its actions.
package format
