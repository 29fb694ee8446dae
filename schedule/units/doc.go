// Package units formats numbers for people: bytes, large whole numbers, times and fractions, in
// the same way throughout a program.
package units
