package tcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/transport"
)

// TestFixtures compares the bytes that processes exchange with those of earlier versions: the greetings of each
// kind of connection, the answers, a frame of each kind, and the headers of a message and of a read.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "protocol-%d.bin", Mark: "WEIR%c\x01", Number: protocol, Remedy: "run the same build everywhere",
		Write: func(t *testing.T) []byte {
			var said bytes.Buffer
			conn := recording{said: &said}
			require.NoError(t, writeGreeting(conn, purposeJoin, "token", hello{1, 2, "unix:/there", []Fact{{"-seed", "1", "one"}}}))
			for _, purpose := range []byte{purposeLink, purposeWindow} {
				require.NoError(t, writeGreeting(conn, purpose, "token", opening{1, true, 2}))
			}
			require.NoError(t, writeAnswer(conn, answer{true, "reason", true, []string{"unix:/here"}}))
			for k := begin; k <= bye; k++ {
				said.Write((&frame{k, 7, []byte("data")}).append(nil))
			}
			for _, value := range []any{transport.RankStatus{}, LostError{}} {
				require.NoError(t, json.NewEncoder(&said).Encode(value))
			}
			tag := transport.Tag{Step: 1, Content: transport.Weights, Stage: 2, Microbatch: 3, Param: 4}
			said.Write(appendHeader(nil, tag, 5))
			return said.Bytes()
		},
		Read: func(text []byte) error {
			near, far := net.Pipe()
			defer near.Close()
			go func() {
				_, _ = io.Copy(far, bytes.NewReader(text))
				_ = far.Close()
			}()
			_, _, refused, err := readGreeting(near, "token")
			if refused != "" {
				err = errors.New(refused)
			}
			return err
		},
	}.Test(t)
}

// recording is a connection that keeps what is written.
type recording struct {
	net.Conn
	said *bytes.Buffer
}

func (r recording) SetWriteDeadline(time.Time) error { return nil }

func (r recording) Write(b []byte) (int, error) { return r.said.Write(b) }
