// Package palette defines the colors of all pictures and pages, in light and in dark mode.
package palette
