package fp8

import "fmt"

// Names lists the names of the usual recipes, in the order of their invention.
var Names = []string{"delayed", "current", "block", "mxfp8", "nvfp4"}

// Named returns the usual recipe with the given name. As published, recipes with one scale for
// each tensor use the hybrid formats, and recipes with blocks use E4M3 in both directions. The
// error for an unknown name wraps ErrRecipe.
func Named(name string) (Recipe, error) {
	both := Pair{Forward: E4M3, Backward: E4M3}
	switch name {
	case "delayed":
		return DelayedScaling{Format: Hybrid}, nil
	case "current":
		return CurrentScaling{Format: Hybrid}, nil
	case "block":
		return BlockScaling{Format: both}, nil
	case "mxfp8":
		return MXFP8{Format: both}, nil
	case "nvfp4":
		return NVFP4{}, nil
	}
	return nil, fmt.Errorf("%w: %.40q is not one of %v", ErrRecipe, name, Names)
}
