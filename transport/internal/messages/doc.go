// Package messages implements the data structures that all transports share: the queue of a link's
// messages on the sender's side, the wait of a rank, and the memory that a rank exposes.
package messages
