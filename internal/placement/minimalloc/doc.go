// Package minimalloc reads and writes placement problems in the CSV format of MiniMalloc
// (Moffitt, ASPLOS 2023).
//
// The first line contains the names of the columns: id, lower, upper and size, in any order, and
// optionally alignment, gaps, hint and offset. Lifetimes are half open. Older names are also accepted:
// start or begin for lower, buffer or buffer_id for id, and end for an inclusive upper. Gaps have the
// form a-b, separated by spaces.
package minimalloc
