// Package spelling finds the name that a misspelled word was meant to be.
package spelling
