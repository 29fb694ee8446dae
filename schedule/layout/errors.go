package layout

import "errors"

var (
	// ErrProfile is wrapped by every error about a profile: about its contents, its file, or a mismatch
	// with the plan.
	ErrProfile = errors.New("layout: invalid profile")
	// ErrConfig is wrapped by every error about a configuration.
	ErrConfig = errors.New("layout: invalid configuration")
	// ErrTooLong is wrapped by the error for a program whose memory cannot be planned, because it allocates
	// too many buffers before it repeats itself, or has too many actions in the bodies of its loops.
	ErrTooLong = errors.New("layout: the program is too long to be planned")
	// ErrBudget is wrapped by the error for a plan that does not fit its budget.
	ErrBudget = errors.New("layout: the plan does not fit the budget")
)
