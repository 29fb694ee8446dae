package atomicfile

var ReplaceFlushing = replace
