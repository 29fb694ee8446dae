package testkit

import "net"

// FreePort returns an address of loopback that nobody listens at. It is not the address from
// which connections to loopback come, whose ports the system gives away meanwhile.
func FreePort(t interface{ Fatal(...any) }) string {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil { // Some systems have 127.0.0.1 alone.
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}
