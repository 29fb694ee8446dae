package minimalloc

// ReadAtMost is Read with another limit of buffers and gaps.
var ReadAtMost = read
