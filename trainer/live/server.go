package live

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	refreshSeconds = "3"      // interval at which a browser reloads
	connections    = 32       // at the same time; one more ends the oldest
	headerBytes    = 16 << 10 // maximum size of a request's header
)

// Server serves the page of one run.
type Server struct {
	listener net.Listener
	end      context.CancelFunc
	asked    atomic.Bool
	served   sync.WaitGroup

	mu   sync.Mutex
	page []byte
}

// Listen starts serving at an address in the form of net.Listen. A port without a host, such as
// ":8080", is on loopback; "0.0.0.0:8080" is on all interfaces.
func Listen(address string) (*Server, error) {
	if strings.HasPrefix(address, ":") {
		address = "localhost" + address
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, page: []byte("<!doctype html><title>A run</title><p>The first step is not done yet.")}
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	s.served.Go(func() { _ = Serve(ctx, listener, http.HandlerFunc(s.serve)) }) // ends with Close
	return s, nil
}

// Serve answers requests with handler until ctx ends, and closes the listener, which must be a TCP listener.
// Requests whose Host may be the name of another site are refused. The duration of a request and the number of
// connections are limited. A further connection ends the oldest one.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	name, _ := os.Hostname() // without a name, only addresses are served
	at := listener.Addr().(*net.TCPAddr)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if known(r.Host, at.IP.IsLoopback(), name) {
				handler.ServeHTTP(w, r)
			} else {
				http.Error(w, "this host is not served: open http://"+at.String()+"/", http.StatusForbidden)
			}
		}),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    headerBytes,
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(&limited{Listener: listener}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// URL returns the address of the page.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/" }

// Update replaces the page by the output of write, if a browser has requested it since the last
// Update. If write fails, the old page stays.
func (s *Server) Update(write func(io.Writer) error) error {
	if !s.asked.Swap(false) {
		return nil
	}
	var page bytes.Buffer
	if err := write(&page); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.page = page.Bytes()
	return nil
}

// Close ends all connections and stops listening.
func (s *Server) Close() error {
	s.end()
	s.served.Wait()
	return nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
	case r.URL.Path != "/":
		http.NotFound(w, r)
	default:
		s.asked.Store(true)
		s.mu.Lock()
		page := s.page
		s.mu.Unlock()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Refresh", refreshSeconds)
		_, _ = w.Write(page) // the browser may have gone
	}
}

// known reports whether a request's Host cannot be the name of another site.
func known(hostport string, loopback bool, name string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	ip := net.ParseIP(host)
	if loopback {
		return host == "localhost" || ip != nil && ip.IsLoopback()
	}
	return ip != nil || host == "localhost" || host != "" && host == strings.ToLower(name)
}

// limited limits the number of concurrent connections.
type limited struct {
	net.Listener
	mu   sync.Mutex
	open []*counted // oldest first
}

func (l *limited) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &counted{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == connections {
		_ = l.open[0].Conn.Close() // its server notices
		l.open = l.open[1:]
	}
	l.open = append(l.open, c)
	return c, nil
}

type counted struct {
	net.Conn
	of *limited
}

func (c *counted) Close() error {
	c.of.mu.Lock()
	c.of.open = slices.DeleteFunc(c.of.open, func(other *counted) bool { return other == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}
