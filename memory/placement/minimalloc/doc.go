// Package minimalloc is for exchanging placement problems: it reads and writes the CSV files
// of MiniMalloc (Moffitt, ASPLOS 2023).
//
// The first line names the columns: id, lower, upper and size, in any order, and if
// wanted alignment, gaps, hint and offset. Lifetimes are half open. Older names are
// read too: start or begin for lower, buffer or buffer_id for id, and end for an upper
// that is alive still. Gaps are a-b, one behind the other with spaces between.
package minimalloc
