//go:build !unix

package job

// onSignal does nothing: there is no such signal.
func onSignal(func()) (stop func()) { return func() {} }
