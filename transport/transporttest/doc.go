// Package transporttest is for the author of a [transport.Transport]: [Run] holds one to its
// contract, in any process layout that can be driven from one test. It needs nothing but
// package testing.
package transporttest
