// Package messages implements the parts that all transports share: the queue of a link's messages
// on the sender's side, and the wait of a rank.
package messages
