// Package local joins the ranks of one process: a package runner with several ranks makes
// [Links] by itself, and a test or a measurement may make its own.
package local
