package cpufeature

// AVX2FMA reports whether AVX2 and FMA3 may be used. AVX512 reports whether the parts F, BW, DQ
// and VL of AVX-512 may be used in addition: it implies AVX2FMA.
var AVX2FMA, AVX512 = detect()
