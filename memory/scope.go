package memory

import (
	"errors"
	"io"
)

// Scope is a part of an arena whose pages are released and restored together. Every buffer is on pages of
// its own scope, so nothing in one scope pins a page of another.
type Scope uint8

// The scopes.
const (
	StepScope Scope = iota // all buffers of classes that are not Lasting
	Weights                // Resident buffers that are in no other scope
	Gradients              // Resident; not read between the optimizer's step and the next step
	Optimizer              // Resident
	Metadata               // Resident, and class Loss: small tables with long lifetimes, placed together

	NumScopes = int(Metadata) + 1
)

var scopeNames = [NumScopes]string{"step", "weights", "gradients", "optimizer", "metadata"}

// Scopes returns all scopes, in order.
func Scopes() []Scope { return []Scope{StepScope, Weights, Gradients, Optimizer, Metadata} }

// String returns the lower-case name.
func (s Scope) String() string {
	if int(s) < NumScopes {
		return scopeNames[s]
	}
	return "scope(?)"
}

// lost reports whether the contents of the scope may be lost between steps.
func (s Scope) lost() bool { return s == StepScope || s == Gradients }

// ScopeStats holds the statistics of a scope, in bytes.
type ScopeStats struct {
	Live     int64 // of buffers whose bytes can be read and written
	Released int64 // of buffers that have an address but no pages (ReleasePages)
	Reserved int64 // held from the system, live or not
	Pages    int64 // pages present according to the kernel; -1 if unknown
}

// Scoped is an optional interface of a Space: it returns the pages of a scope to the system between steps
// but keeps the addresses. Handles stay valid.
type Scoped interface {
	// Scope returns the statistics of a scope. It may need a system call.
	Scope(scope Scope) ScopeStats
	// ReleasePages releases the pages of the scopes. The contents of StepScope and Gradients
	// are not needed between steps and are lost; the contents of other scopes are first written
	// to w, which may be nil if no such scope is given. It returns ErrLive, with the owners,
	// while a step or a transfer is in progress. If w fails, nothing is released. Without
	// scopes it only checks for ErrLive.
	ReleasePages(w io.Writer, scopes ...Scope) error
	// RestorePages restores all released pages in one call, so that the next step has no page faults, and
	// reads the saved contents from r, which may be nil if nothing was written. It returns ErrOutOfMemory
	// if the system refuses, and ErrSaved if r does not contain the saved contents; the scopes then stay
	// released, and RestorePages can be called again.
	RestorePages(r io.Reader) error
}

// Errors of scopes.
var (
	// ErrReleased is returned for the use of a buffer, and for an allocation, in a scope whose pages were
	// released and have not been restored, by SetLayout if there is such a scope, and by ReleasePages if
	// the output of an earlier call was not read back.
	ErrReleased = errors.New("memory: the pages of the scope are released")
	// ErrSaved is returned by RestorePages if its input is not what ReleasePages wrote.
	ErrSaved = errors.New("memory: not what ReleasePages wrote")
)
