// Package palette defines the colours of all pictures and pages, in light and in dark mode.
package palette
