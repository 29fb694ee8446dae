// Package messages is the half of a link that every transport needs on the sender's side, the
// queue of its messages, and the wait of a rank.
package messages
