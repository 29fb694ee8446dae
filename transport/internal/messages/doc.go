// Package messages implements the data structures that all transports share: the sender's queue of a
// link's messages, a rank's wait, and the memory that a rank exposes.
package messages
