package layout

import "errors"

var (
	// ErrProfile is wrapped by every error about a profile: alone, in a file, or for a
	// plan.
	ErrProfile = errors.New("layout: invalid profile")
	// ErrConfig is wrapped by every error about a configuration.
	ErrConfig = errors.New("layout: invalid configuration")
	// ErrTooLong is returned where a program keeps so much at once, and so irregularly,
	// that its memory is not planned.
	ErrTooLong = errors.New("layout: the program is too long to be planned")
	// ErrBudget is returned where a plan does not fit its budget.
	ErrBudget = errors.New("layout: the plan does not fit the budget")
)
