// Package units writes numbers for people: bytes, large whole numbers, times and parts of
// a whole, in the same way wherever a program prints them.
package units
