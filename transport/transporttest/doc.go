// Package transporttest is for the author of a [transport.Transport]: [Run] tests its contract,
// in any process layout that one test can drive. It needs only package testing.
package transporttest
