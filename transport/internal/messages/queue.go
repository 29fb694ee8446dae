package messages

import "github.com/weir-ml/weir/transport"

// Queue is a ring of the messages that a sender has put on a link, oldest first. It also keeps the
// tags that the sender has not waited for. The zero value is an empty link.
type Queue[T any] struct {
	Sent int64 // number of messages since Reset

	ring         []Message[T]
	first, count int
	sent         []sending // the messages that the sender has waited for come first; the others follow in send order
	waited       int       // number of messages at the start of sent that Number has returned
}

// Message holds the handles that a sender lends to a link.
type Message[T any] struct {
	Tag transport.Tag
	H   []T
}

// sending describes a sent message. Messages are numbered from 1.
type sending struct {
	tag     transport.Tag
	number  int64
	tensors int
}

// Len returns the number of messages in the queue.
func (q *Queue[T]) Len() int { return q.count }

// First returns the oldest message. There must be one.
func (q *Queue[T]) First() *Message[T] { return &q.ring[q.first] }

// Push adds a message. The length of the ring is the largest number of messages that the queue has ever
// held at the same time, rounded up to a power of two.
func (q *Queue[T]) Push(tag transport.Tag, h []T) {
	if q.count == len(q.ring) {
		ring := make([]Message[T], max(2*len(q.ring), 1))
		for i := range q.count {
			ring[i] = q.ring[(q.first+i)%len(q.ring)]
		}
		q.ring, q.first = ring, 0
	}
	m := &q.ring[(q.first+q.count)%len(q.ring)]
	m.Tag, m.H = tag, append(m.H[:0], h...)
	q.count++
	q.Sent++
	if q.waited > 0 && len(q.sent) == cap(q.sent) {
		q.sent, q.waited = q.sent[:copy(q.sent, q.sent[q.waited:])], 0
	}
	q.sent = append(q.sent, sending{tag, q.Sent, len(h)})
}

// Pop removes the oldest message.
func (q *Queue[T]) Pop() {
	clear(q.First().H)
	q.first = (q.first + 1) % len(q.ring)
	q.count--
}

// Number returns the number of the first message with a tag for which the sender has not waited, and records
// that it waits. If there is none, Number returns 0. It is fastest if the sender waits in send order.
func (q *Queue[T]) Number(tag transport.Tag) int64 {
	for i := q.waited; i < len(q.sent); i++ {
		if q.sent[i].tag == tag {
			number := q.sent[i].number
			copy(q.sent[q.waited+1:i+1], q.sent[q.waited:i])
			q.waited++
			return number
		}
	}
	return 0
}

// Find returns the tag and the number of handles of a message that is in the queue or for which the
// sender has not waited, or zero values if it finds none.
func (q *Queue[T]) Find(number int64) (tag transport.Tag, tensors int) {
	for _, s := range q.sent {
		if s.number == number {
			return s.tag, s.tensors
		}
	}
	return tag, 0
}

// Reset removes all messages and tags.
func (q *Queue[T]) Reset() {
	for q.count > 0 {
		q.Pop()
	}
	q.Sent = 0
	q.sent, q.waited = q.sent[:0], 0
}
