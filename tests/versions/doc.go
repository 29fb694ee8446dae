// Package versions compares this version with the last one: it reads the files that the last version wrote,
// continues its training, and checks that processes of the two versions refuse to join one job.
package versions
