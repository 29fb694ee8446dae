package tcp

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// A connection begins with a greeting: "WEIR", the version, the purpose of the connection, a digest
// of the token, the length of the data, and the data, which is read only if the token is right. A
// joining rank receives two answers: one when it is accepted, and one with the addresses of all
// ranks when all have joined. A link receives one byte when it is accepted, and so does a connection
// for reads of exposed memory.
const (
	protocol      = 7
	greetingBytes = 4 + 1 + 1 + sha256.Size + 4
	maxHello      = 256 << 10
	maxAnswer     = 16 << 20
	handshake     = 10 * time.Second
	maxHandshakes = 64 // in progress at the same time; one more ends the oldest

	welcome = 'w'
)

// The purposes of a connection.
const (
	purposeJoin byte = iota + 1
	purposeLink
	purposeWindow
)

// hello is the data in the greeting of a joining rank.
type hello struct {
	Rank, Ranks int
	Address     string // where the rank listens
	Facts       []Fact
}

// answer is the reply of rank 0 to a joining rank.
type answer struct {
	Accepted  bool   `json:"Here"` // a second answer follows
	Refused   string // the reason, or "" if the rank is not refused
	Missing   bool   // the reason is that other ranks are missing
	Addresses []string
}

// opening is the data in the greeting of a link, or of a connection for reads of exposed memory.
type opening struct {
	From     int
	Backward bool
	Epoch    int64
}

func digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte("weir job " + token)) }

// writeGreeting writes a greeting whose data is a value encoded as JSON.
func writeGreeting(conn net.Conn, purpose byte, token string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	sum := digest(token)
	b := append([]byte{'W', 'E', 'I', 'R', protocol, purpose}, sum[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	_, err = conn.Write(append(b, data...))
	return err
}

// readGreeting reads a greeting. If refused is not empty, it is the answer for a program with a
// different version or token.
func readGreeting(conn net.Conn, token string) (purpose byte, data []byte, refused string, err error) {
	var b [greetingBytes]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return 0, nil, "", err
	}
	size, sum := binary.LittleEndian.Uint32(b[greetingBytes-4:]), digest(token)
	switch {
	case string(b[:4]) != "WEIR" || b[5] < purposeJoin || b[5] > purposeWindow || size > maxHello:
		return 0, nil, "", ErrFrame
	case b[4] != protocol:
		refused = fmt.Sprintf("rank 0 speaks version %d of the protocol, this rank version %d: run the same build everywhere", protocol, b[4])
	case subtle.ConstantTimeCompare(b[6:6+sha256.Size], sum[:]) != 1:
		refused = "the token is not the token of this job"
	}
	if refused != "" { // discard the data: closing a connection with unread data could lose the answer
		_, err = io.CopyN(io.Discard, conn, int64(size))
		return b[5], nil, refused, err
	}
	data, err = readBytes(conn, size, maxHello)
	return b[5], data, "", err
}

// writeAnswer writes an answer.
func writeAnswer(conn net.Conn, a answer) error {
	data, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err = conn.SetWriteDeadline(time.Now().Add(handshake)); err == nil {
		_, err = conn.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...))
	}
	return err
}

// readAnswer reads an answer.
func readAnswer(conn net.Conn) (a answer, err error) {
	var size [4]byte
	if _, err = io.ReadFull(conn, size[:]); err != nil {
		return a, err
	}
	data, err := readBytes(conn, binary.LittleEndian.Uint32(size[:]), maxAnswer)
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	return a, err
}

// readBytes reads a given number of bytes. It returns an error, before allocating memory, if size is
// more than most.
func readBytes(r io.Reader, size uint32, most int64) ([]byte, error) {
	if int64(size) > most {
		return nil, fmt.Errorf("%w: %d bytes, and the limit is %d", ErrFrame, size, most)
	}
	data := make([]byte, size)
	_, err := io.ReadFull(r, data)
	return data, err
}
