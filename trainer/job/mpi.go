//go:build mpi

package job

import (
	"context"

	"github.com/weir-ml/weir/transport/mpi"
)

// startMPI starts MPI together with all processes of the job.
func startMPI(ctx context.Context) (mpiWorld, error) { return mpi.Start(ctx, mpi.Config{}) }
