package memrecords

import "github.com/weir-ml/weir/memory/memlog"

// Sink writes the records of a log in another form, one by one. A record is borrowed for the
// call. Close completes the output, but does not close the underlying writer.
type Sink interface {
	Add(record *memlog.Record) error
	Close() error
}
