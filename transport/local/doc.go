// Package local joins the ranks of one process. A runner with several ranks creates its [Links];
// a test or a measurement may create its own.
package local
