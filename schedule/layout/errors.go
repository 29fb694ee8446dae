package layout

import "errors"

var (
	// ErrProfile is wrapped by every error about a profile: about its contents, its file, or a mismatch
	// with the plan.
	ErrProfile = errors.New("layout: invalid profile")
	// ErrConfig is wrapped by every error about a configuration.
	ErrConfig = errors.New("layout: invalid configuration")
	// ErrTooLong is returned if a program allocates too many buffers before it repeats itself, so that
	// its memory cannot be planned.
	ErrTooLong = errors.New("layout: the program is too long to be planned")
	// ErrBudget is returned if a plan does not fit its budget.
	ErrBudget = errors.New("layout: the plan does not fit the budget")
)
