// Package pickle reads untrusted pickles of plain data: numbers, texts, lists, tuples and dicts, in
// protocols 2 to 5, or the same data in JSON. It runs no code, and refuses a pickle that names or
// calls code.
//
// [Read] and [ReadJSON] return a [Data], which owns all values of one file; a [Value] is
// a small handle into it. Memory is counted before it is taken, against a limit and
// against the number of bytes read, so that a small file cannot hold much. Callers count what they
// make of the values with [Data.Hold].
package pickle
