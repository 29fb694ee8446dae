package main

import "strconv"

// duration writes seconds for people.
func duration(seconds float64) string {
	switch {
	case seconds < 1e-3:
		return strconv.FormatFloat(seconds*1e6, 'f', 1, 64) + " µs"
	case seconds < 1:
		return strconv.FormatFloat(seconds*1e3, 'f', 1, 64) + " ms"
	}
	return strconv.FormatFloat(seconds, 'f', 2, 64) + " s"
}

// percent writes a part of 1 for people.
func percent(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + "%" }
