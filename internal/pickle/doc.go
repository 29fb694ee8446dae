// Package pickle is for reading pickles of plain data from strangers: numbers, texts, lists,
// tuples and dicts, in protocols 2 to 5, or the same data in JSON. No code is ever run: a
// pickle that names or calls code is refused.
//
// [Read] and [ReadJSON] return a [Data], which owns all values of one file; a [Value] is
// a small handle into it. Memory is counted before it is taken, against a limit and
// against the bytes that have been read, so that a small file cannot hold much. What a
// caller makes of the values it counts with [Data.Hold].
package pickle
