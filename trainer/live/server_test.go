package live_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
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

func TestConnectionsAreBounded(t *testing.T) {
	server := listen(t, ":0")
	address := strings.Trim(strings.TrimPrefix(server.URL(), "http://"), "/")
	var open []net.Conn
	for range 100 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		open = append(open, conn)
	}
	refused := 0
	for _, conn := range slices.Backward(open) {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) && !isTimeout(err) {
			refused++
		}
		if refused >= 68 {
			break
		}
	}
	require.Equal(t, 68, refused, "those behind the 32nd")
	for _, conn := range open {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool {
		response, err := http.Get(server.URL())
		return err == nil && response.Body.Close() == nil && response.StatusCode == 200
	}, 5*time.Second, 10*time.Millisecond, "places come free")
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
