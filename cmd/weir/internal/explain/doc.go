// Package explain explains the errors of the library.
package explain
