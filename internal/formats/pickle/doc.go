// Package pickle reads untrusted pickles of plain data: numbers, texts, lists, tuples and dicts, in
// protocols 2 to 5, or the same data as JSON. It does not run code, and refuses a pickle that names
// or calls any.
//
// [Read] and [ReadJSON] return a [Data], which owns all values of one file; a [Value] is a small handle into
// it. Memory is counted before it is taken, against a limit and against the number of bytes read, so that a
// small file cannot hold much. Callers use [Data.Hold] to count the memory of their own data.
package pickle
