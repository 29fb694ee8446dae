// Package launch starts the processes of a job on this host, and determines the rank of a process under any of
// several launchers. The process passes its environment in.
//
// [Job.Run] starts a job. [Find] returns the [Rendezvous] of the process that calls it.
package launch
