//go:build !purego

#include "textflag.h"

// There is no AVX-512 here, and no set that leads to it.

TEXT ·sweep512(SB), NOSPLIT, $0-16
	UNDEF

TEXT ·tight512(SB), NOSPLIT, $0-16
	UNDEF
