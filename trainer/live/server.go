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
	refreshSeconds = "3"      // interval at which a browser reloads
	connections    = 32       // at once; others are refused
	headerBytes    = 16 << 10 // maximum of a request
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
	host, _ := os.Hostname() // without a name, only addresses are served
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
	s.served.Go(func() { _ = s.server.Serve(&limited{listener, make(chan struct{}, connections)}) }) // ends with Close
	return s, nil
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
		_, _ = w.Write(page) // the browser may have gone
	}
}

// known reports whether a request's Host cannot be the name of another site.
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

// limited limits the number of concurrent connections.
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
			_ = conn.Close() // it may be closed already
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
