// Package live serves the page of a run to browsers during training.
//
// [Listen] returns a [Server], which serves one read-only page. The trainer calls [Server.Update] after every
// step. Update writes the page only if a browser has requested it since the last update, so an unused page
// costs one atomic operation per step.
//
// A server that listens on loopback answers only requests whose Host is loopback too, so that no
// web page can read it through a name that resolves to this machine. On other addresses the Host
// must be an IP address, localhost or the name of this machine. There is no password: on a shared
// machine or a network, everyone who can reach the port can read the page.
package live
