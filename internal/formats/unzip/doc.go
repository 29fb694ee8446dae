// Package unzip finds untrusted files and reads them, compressed or not. It refuses a gzip file that unpacks to
// far more than its own size.
package unzip
