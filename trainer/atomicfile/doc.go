// Package atomicfile writes files under names chosen by a user. [Write] replaces a file completely or not at
// all, follows a link, and writes directly to pipes and devices. A [Stream] is a log that has a temporary name
// until it is complete.
package atomicfile
