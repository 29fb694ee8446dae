// Package diagnostic keeps the parts of an error message in fields: the kind of error, its position in a text,
// and the fault itself. A command can then show one part without parsing the message.
package diagnostic
