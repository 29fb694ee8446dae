//go:build !mpi

package job

import (
	"context"
	"errors"
)

// startMPI returns an error that explains how to build the program with MPI.
func startMPI(context.Context) (mpiWorld, error) {
	return nil, errors.New("this program is built without MPI: build it with CC=mpicc go build -tags mpi, where mpicc is that of your MPI library")
}
