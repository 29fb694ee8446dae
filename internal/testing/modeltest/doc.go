// Package modeltest records the profiles of transformers for tests.
package modeltest
