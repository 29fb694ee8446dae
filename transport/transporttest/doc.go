// Package transporttest is for authors of a [transport.Transport]. [Run] tests whether the transport fulfills
// its contract. The endpoints may be in several processes, as long as one test can call all of them.
package transporttest
