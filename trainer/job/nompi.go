//go:build !mpi

package job

import (
	"context"
	"errors"
)

// startMPI says how to get a program that has MPI.
func startMPI(context.Context) (mpiWorld, error) {
	return nil, errors.New("this program is built without MPI: build it with CC=mpicc go build -tags mpi, where mpicc is that of your MPI library")
}
