/*
 * Measures one matrix product of OpenBLAS:
 *
 *     sgemm LIBRARY m n k transposed_a transposed_b accumulate threads seconds cpu
 *
 * It prints JSON: the library's description of itself, and the median and the best GFLOP/s of
 * samples with the duration that products.go uses.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void gemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);

static void *library;

/* The library of PyPI has a prefix before its names. */
static void *symbol(const char *name) {
	char prefixed[64];
	snprintf(prefixed, sizeof prefixed, "scipy_%s", name);
	void *f = dlsym(library, prefixed);
	if (!f) {
		fprintf(stderr, "sgemm: %s\n", dlerror());
		exit(1);
	}
	return f;
}

static double now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

static float *draw(long n) {
	float *x = aligned_alloc(64, (4 * n + 63) / 64 * 64);
	for (long i = 0; i < n; i++)
		x[i] = rand() / (float)RAND_MAX - 0.5f;
	return x;
}

static int ascending(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	enum { most = 1 << 20, row_major = 101, plain = 111, transposed = 112 };
	if (argc != 11)
		return 2;
	if (!(library = dlopen(argv[1], RTLD_NOW))) {
		fprintf(stderr, "sgemm: %s\n", dlerror());
		return 1;
	}
	int m = atoi(argv[2]), n = atoi(argv[3]), k = atoi(argv[4]);
	int ta = atoi(argv[5]), tb = atoi(argv[6]), add = atoi(argv[7]);
	double seconds = atof(argv[9]);
	clockid_t clock = atoi(argv[10]) ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
	gemm *multiply = (gemm *)symbol("cblas_sgemm");
	((void (*)(int))symbol("openblas_set_num_threads"))(atoi(argv[8]));

	float *a = draw((long)m * k), *b = draw((long)k * n), *c = draw((long)m * n);
	double *rates = malloc(most * sizeof *rates), flops = 2.0 * m * n * k;
	int calls = 1 + (int)(2e7 / flops), count = -1; /* the first sample touches the memory */
	for (double begin = now(CLOCK_MONOTONIC); count < 3 || (count < most && now(CLOCK_MONOTONIC) - begin < seconds); count++) {
		double start = now(clock);
		for (int i = 0; i < calls; i++)
			multiply(row_major, ta ? transposed : plain, tb ? transposed : plain, m, n, k, 1, a, ta ? m : k, b, tb ? k : n,
			         add ? 1 : 0, c, n);
		if (count >= 0)
			rates[count] = flops * calls / (now(clock) - start) * 1e-9;
	}
	qsort(rates, count, sizeof *rates, ascending);
	printf("{\"name\": \"%s\", \"median\": %g, \"best\": %g}\n", ((char *(*)(void))symbol("openblas_get_config"))(), rates[count / 2],
	       rates[count - 1]);
	return 0;
}
