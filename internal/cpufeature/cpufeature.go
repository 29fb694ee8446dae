package cpufeature

// AVX2FMA is set where AVX2 and FMA3 may be used. AVX512 is set where in addition
// the parts F, BW, DQ and VL of AVX-512 may be used: it is never set alone.
var AVX2FMA, AVX512 = detect()
