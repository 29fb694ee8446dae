package live_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/live"
)

func Example() {
	server, err := live.Listen("localhost:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	for step := range 2 {
		err = errors.Join(err, server.Update(func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "<!doctype html><p>step %d", step)
			return err
		}))
	}
	fmt.Println(err, strings.HasPrefix(server.URL(), "http://127.0.0.1:"))
	// Output: <nil> true
}

func listen(t *testing.T, address string) *live.Server {
	server, err := live.Listen(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

func ask(t *testing.T, server *live.Server, method, path, host string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequest(method, strings.TrimSuffix(server.URL(), "/")+path, strings.NewReader("x=1"))
	require.NoError(t, err)
	if host != "" {
		request.Host = host
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	return response, string(body)
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func TestAPageIsWrittenForThoseWhoAsk(t *testing.T) {
	server := listen(t, ":0")
	require.NoError(t, server.Update(func(io.Writer) error { panic("nobody has asked") }))
	_, body := ask(t, server, "GET", "/", "")
	require.Contains(t, body, "not done yet")
	require.NoError(t, server.Update(text("one")))
	require.NoError(t, server.Update(func(io.Writer) error { panic("nobody has asked again") }))
	_, body = ask(t, server, "GET", "/", "")
	require.Equal(t, "one", body)
	full := errors.New("full")
	require.ErrorIs(t, server.Update(func(w io.Writer) error { fmt.Fprint(w, "half"); return full }), full)
	response, body := ask(t, server, "GET", "/", "")
	require.Equal(t, "one", body)
	require.Contains(t, response.Header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Equal(t, "3", response.Header.Get("Refresh"))
}

func TestWhoIsAnswered(t *testing.T) {
	loopback, everybody := listen(t, ":0"), listen(t, "0.0.0.0:0")
	for _, c := range []struct {
		server             *live.Server
		method, path, host string
		status             int
	}{
		{loopback, "GET", "/", "", 200},
		{loopback, "HEAD", "/", "", 200},
		{loopback, "GET", "/", "localhost", 200},
		{loopback, "GET", "/", "LocalHost.:8080", 200},
		{loopback, "GET", "/", "[::1]:8080", 200},
		{loopback, "GET", "/", "evil.example", 403},
		{loopback, "GET", "/", "localhost.evil.example:8080", 403},
		{loopback, "GET", "/", "192.168.1.7", 403},
		{loopback, "POST", "/", "", 405},
		{loopback, "DELETE", "/", "", 405},
		{loopback, "GET", "/../etc/passwd", "", 404},
		{loopback, "GET", "/page", "", 404},
		{everybody, "GET", "/", "192.168.1.7:80", 200},
		{everybody, "GET", "/", "evil.example", 403},
	} {
		response, _ := ask(t, c.server, c.method, c.path, c.host)
		require.Equal(t, c.status, response.StatusCode, "%s %s of %q", c.method, c.path, c.host)
	}
}

// Answered connections stay open for half a minute: while there are 32, further ones are closed.
func TestConnectionsAreBounded(t *testing.T) {
	server := listen(t, ":0")
	address := strings.Trim(strings.TrimPrefix(server.URL(), "http://"), "/")
	connect := func() (conn net.Conn, answered bool) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return nil, false
		}
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") // the connection may be closed already
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
		}
		return conn, err == nil
	}
	var open []net.Conn
	for i := range 40 {
		conn, answered := connect()
		require.NotNil(t, conn)
		require.Equal(t, i < 32, answered, "connection %d", i)
		if open = append(open, conn); i == 39 {
			require.NoError(t, open[0].Close())
		}
	}
	require.Eventually(t, func() bool {
		conn, answered := connect()
		return conn != nil && conn.Close() == nil && answered
	}, time.Minute, 10*time.Millisecond, "places come free")
	for _, conn := range open[1:] {
		require.NoError(t, conn.Close())
	}
}
