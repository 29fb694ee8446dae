//go:build !purego

#include "textflag.h"

// arm64 has no AVX-512, and no Set leads to these functions.

TEXT ·sweep512(SB), NOSPLIT, $0-16
	UNDEF

TEXT ·tight512(SB), NOSPLIT, $0-16
	UNDEF
