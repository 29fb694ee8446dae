// Package units is for printing numbers to people: bytes, large whole numbers, times and parts
// of a whole, in the same way wherever a program prints them.
package units
