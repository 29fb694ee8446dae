//go:build !purego

#include "textflag.h"

// arm64 has no AVX-512, and no Set leads to these functions.

TEXT ·encodeColumns512(SB), NOSPLIT, $0-56
	UNDEF

TEXT ·amaxColumns512(SB), NOSPLIT, $0-32
	UNDEF

TEXT ·scaleColumns512(SB), NOSPLIT, $0-41
	UNDEF

TEXT ·decode512(SB), NOSPLIT, $0-29
	UNDEF

TEXT ·decodeMX512(SB), NOSPLIT, $0-48
	UNDEF

TEXT ·decodeNV512(SB), NOSPLIT, $0-32
	UNDEF

TEXT ·tile512(SB), NOSPLIT, $0-16
	UNDEF

TEXT ·pack512(SB), NOSPLIT, $0-33
	UNDEF

TEXT ·packScaled512(SB), NOSPLIT, $0-40
	UNDEF
