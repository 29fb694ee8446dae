// Package tensorboard is for those who compare their runs in TensorBoard: it writes the event
// files.
//
// A [Writer] appends records to any io.Writer, one for each call, and buffers nothing: a
// reader that follows the file sees every step, and a killed run leaves at most one cut
// record, which TensorBoard skips. [Create] opens a file by the name that TensorBoard looks
// for.
//
// The format is that of TensorFlow's record_writer.cc and event.proto: a record is its
// length, a masked CRC-32C of the length, an Event in protocol buffers, and a masked CRC-32C
// of that.
package tensorboard
