package live_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
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

// Held connections do not lock the page: while there are 32, one more ends the oldest.
func TestConnectionsAreBounded(t *testing.T) {
	server := listen(t, ":0")
	address := strings.Trim(strings.TrimPrefix(server.URL(), "http://"), "/")
	ended := func(conn net.Conn, within time.Duration) bool {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(within)))
		_, err := conn.Read(make([]byte, 1))
		return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	}
	var held []net.Conn
	for range 40 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		held = append(held, conn)
	}
	_, body := ask(t, server, "GET", "/", "")
	require.Contains(t, body, "not done yet")
	require.True(t, ended(held[0], time.Minute))
	require.False(t, ended(held[39], time.Millisecond))
}

// Any handler is served with the same checks.
func TestServe(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- live.Serve(ctx, listener, http.NotFoundHandler()) }()
	for host, status := range map[string]int{"localhost": 404, "evil.example": 403} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String(), nil)
		require.NoError(t, err)
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, status, response.StatusCode)
	}
	cancel()
	require.NoError(t, <-served)
}
