// Plain MPI beside transport/mpi: half of a round trip between two processes, the least mean of
// five rounds, for the sizes of ours.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int size = 8; size <= 16 << 20; size = size == 8 ? 4 << 10 : size == 4 << 10 ? 1 << 20 : size << 4) {
		int n = size > 1 << 16 ? 50 : 2000;
		char *data = calloc(size, 1);
		double best = 1e9;
		for (int round = 0; round < 5; round++) {
			double start = MPI_Wtime();
			for (int i = 0; i < n; i++) {
				if (rank == 0) MPI_Send(data, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
				MPI_Recv(data, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				if (rank == 1) MPI_Send(data, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
			}
			double took = (MPI_Wtime() - start) / n / 2;
			if (took < best) best = took;
		}
		if (rank == 0) printf("%-10s %9d B %10.1f us %6.2f GB/s\n", "plain", size, best * 1e6, size / best / 1e9);
		free(data);
	}
	return MPI_Finalize();
}
