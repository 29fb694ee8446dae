package outfile

var ReplaceFlushing = replace
