// Package units formats numbers for people: bytes, large whole numbers, times and fractions, in
// the same way throughout a program.
//
// [Size] is for bytes, [Seconds] for times, [Count] and [Number] for whole numbers, [Percent] for
// fractions, and [ParseSize] reads a size that a user has typed.
package units
