package live

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	refreshSeconds = "3"      // after which a browser asks again
	connections    = 32       // at once; more are refused
	headerBytes    = 16 << 10 // of a request, at most
)

// Server serves the page of one run.
type Server struct {
	server   *http.Server
	listener net.Listener
	loopback bool
	host     string // name of this machine
	asked    atomic.Bool
	served   sync.WaitGroup

	mu   sync.Mutex
	page []byte
}

// Listen begins to serve at an address as net.Listen has it. A port alone, such as ":8080", is
// that of loopback; "0.0.0.0:8080" is for everybody.
func Listen(address string) (*Server, error) {
	if strings.HasPrefix(address, ":") {
		address = "localhost" + address
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // Without one, only addresses are answered.
	s := &Server{
		listener: listener, host: host,
		loopback: listener.Addr().(*net.TCPAddr).IP.IsLoopback(),
		page:     []byte("<!doctype html><title>A run</title><p>The first step is not done yet."),
	}
	s.server = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    headerBytes,
	}
	s.served.Go(func() { _ = s.server.Serve(&limited{listener, make(chan struct{}, connections)}) }) // It ends with Close.
	return s, nil
}

// URL returns where the page is.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() + "/" }

// Update takes the page that write writes, where somebody has asked for one since the last.
// A page that cannot be written leaves the one before.
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

// Close ends all connections.
func (s *Server) Close() error {
	err := s.server.Close()
	s.served.Wait()
	return err
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	switch {
	case !s.known(r.Host):
		http.Error(w, "this host is not served: open "+s.URL(), http.StatusForbidden)
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
		_, _ = w.Write(page) // Who went away does not read.
	}
}

// known reports whether a request's Host is one that cannot be another site's name.
func (s *Server) known(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	ip := net.ParseIP(host)
	if s.loopback {
		return host == "localhost" || ip != nil && ip.IsLoopback()
	}
	return ip != nil || host == "localhost" || host != "" && host == strings.ToLower(s.host)
}

// limited accepts only so many connections at once.
type limited struct {
	net.Listener
	free chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.free <- struct{}{}:
			return &counted{Conn: conn, free: l.free}, nil
		default:
			_ = conn.Close() // It may come again.
		}
	}
}

type counted struct {
	net.Conn
	free   chan struct{}
	closed atomic.Bool
}

func (c *counted) Close() error {
	if c.closed.Swap(true) {
		return net.ErrClosed
	}
	<-c.free
	return c.Conn.Close()
}
