// Package unzip is for finding files and for reading gzip files of strangers: a file that unpacks to far more than
// its own size is refused.
package unzip
