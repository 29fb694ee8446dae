// Package tensorboard writes event files for TensorBoard.
//
// A [Writer] appends records to any io.Writer, one for each call, without a buffer: a reader that
// follows the file sees every step, and a killed run leaves at most one incomplete record, which
// TensorBoard skips. [Create] creates a file with the name that TensorBoard expects.
//
// The format is defined by TensorFlow's record_writer.cc and event.proto: a record is its length,
// a masked CRC-32C of the length, an Event in protocol buffers, and a masked CRC-32C of the
// event.
package tensorboard
