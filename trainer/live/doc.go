// Package live is for watching a run in a browser while it trains: it serves a page of the
// run.
//
// A [Server] has one page, and serves it to be read and never acts on a request. The trainer
// offers to write it after every step ([Server.Update]); it is written only where somebody has
// asked since the last one, so that a page that nobody looks at costs an atomic load a step.
//
// A server that listens on loopback answers only requests whose Host is loopback too, so
// that no web page can read it through a name that it makes resolve to this machine.
// Elsewhere the Host must be an address or the name of this machine. There is no password:
// on a shared machine or a network, whoever reaches the port reads the page.
package live
