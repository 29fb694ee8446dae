package memory

import (
	"errors"
	"io"
)

// Scope is a part of an arena whose pages come and go together. Every buffer lies on
// pages of its scope, so nothing in one scope keeps a page of another one.
type Scope uint8

// The scopes.
const (
	StepScope Scope = iota // all buffers of classes that are not Lasting
	Weights                // what is Resident and was given no other scope
	Gradients              // Resident; not read between the optimizer's step and the next step
	Optimizer              // Resident
	Metadata               // Resident, and class Loss: one slab for tables that are small and live long

	NumScopes = int(Metadata) + 1
)

var scopeNames = [NumScopes]string{"step", "weights", "gradients", "optimizer", "metadata"}

// String returns the name in lower case.
func (s Scope) String() string {
	if int(s) < NumScopes {
		return scopeNames[s]
	}
	return "scope(?)"
}

// lost reports whether the contents of the scope may be lost between steps.
func (s Scope) lost() bool { return s == StepScope || s == Gradients }

// ScopeStats is what a scope has, in bytes.
type ScopeStats struct {
	Live     int64 // of buffers whose bytes can be read and written
	Released int64 // of buffers that have an address and no pages (ReleasePages)
	Reserved int64 // held from the system, live or not
	Pages    int64 // for which the kernel has pages, by its own account; -1 where it does not say
}

// Scoped is an optional ability of a Space: to hand the pages of a scope back to the
// system between steps, and to keep the addresses. Handles stay valid.
type Scoped interface {
	// Scope returns what a scope has. It may ask the kernel, which takes a system call.
	Scope(scope Scope) ScopeStats
	// ReleasePages hands back the pages of the scopes. The contents of StepScope and
	// Gradients are not read between steps and are lost; those of the others are written to w
	// before, which may be nil where no such scope is named. It is ErrLive, with the
	// owners, while a step or a transfer is under way. If w fails nothing is released.
	// Of no scopes it is the question whether it would be ErrLive.
	ReleasePages(w io.Writer, scopes ...Scope) error
	// RestorePages takes all pages that were released back at once, so that the next step
	// meets none that is missing, and reads what was written from r, which may be nil where
	// nothing was. It is ErrOutOfMemory where the system refuses, and ErrSaved where r does
	// not give what was written; the scopes then stay released, and it can be called again.
	RestorePages(r io.Reader) error
}

// Errors of scopes.
var (
	// ErrReleased is returned for the use of a buffer, and for an allocation, in a scope whose
	// pages were released and not restored.
	ErrReleased = errors.New("memory: the pages of the scope are released")
	// ErrSaved is returned by RestorePages where what it reads is not what was written.
	ErrSaved = errors.New("memory: not what ReleasePages wrote")
)
