// Package launch starts the processes of a job on this host, and tells a process which one it
// is, whoever has started it. It reads no environment by itself: a command hands it over.
package launch
