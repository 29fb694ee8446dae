// Package unzip is for finding untrusted files and for reading them if they are compressed: a gzip file
// that unpacks to far more than its own size is refused.
package unzip
