//go:build mpi

package main

import "github.com/weir-ml/weir/transport/mpi"

// startMPI begins MPI, with all processes of the job.
func startMPI() (mpiWorld, error) { return mpi.Start(mpi.Config{}) }
