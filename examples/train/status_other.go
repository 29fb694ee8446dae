//go:build !unix

package main

// onStatus does nothing: there is no such signal.
func onStatus(func()) (stop func()) { return func() {} }
