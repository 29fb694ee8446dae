package chrometrace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Event is one event of a trace. Its fields have the names of the format.
type Event struct {
	Phase  string `json:"ph"`
	Bind   string `json:"bp,omitempty"`
	ID     int    `json:"id,omitempty"`
	Name   string `json:"name"`
	Class  string `json:"cat,omitempty"`
	Rank   int    `json:"pid"`
	Track  int    `json:"tid"`
	Start  Time   `json:"ts"`
	Length *Time  `json:"dur,omitempty"`
	Args   any    `json:"args,omitempty"`
}

// Time is a time in microseconds, which is written to the nanosecond.
type Time float64

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) { return json.Marshal(math.Round(float64(t)*1e3) / 1e3) }

// Counter is one value of a counter event.
type Counter struct {
	Name  string
	Value int64
}

// Counters are the values of a counter event, in the order in which viewers stack them.
type Counters []Counter

// MarshalJSON implements json.Marshaler.
func (c Counters) MarshalJSON() ([]byte, error) {
	b := []byte("{")
	for i, one := range c {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "%q:%d", one.Name, one.Value)
	}
	return append(b, '}'), nil
}

// Writer writes events. It keeps the first error of its writer, which Close returns.
type Writer struct {
	b         *bufio.Writer
	separator string
}

// New begins a trace. The caller closes w.
func New(w io.Writer) *Writer {
	b := bufio.NewWriter(w)
	b.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	return &Writer{b, "\n"}
}

// Event writes an event.
func (w *Writer) Event(e Event) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	w.b.WriteString(w.separator)
	w.separator = ",\n"
	_, err = w.b.Write(line)
	return err
}

// Label names the process of a rank, or one of its tracks: kind is process_name or
// thread_name.
func (w *Writer) Label(kind string, rank, track int, name string) error {
	return w.Event(Event{Phase: "M", Name: kind, Rank: rank, Track: track, Args: map[string]string{"name": name}})
}

// Count writes the values of a counter of a rank.
func (w *Writer) Count(name string, rank int, at Time, values ...Counter) error {
	return w.Event(Event{Phase: "C", Name: name, Rank: rank, Start: at, Args: Counters(values)})
}

// Close ends the trace.
func (w *Writer) Close() error {
	w.b.WriteString("\n]}\n")
	return w.b.Flush()
}
