package testkit

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// given are the addresses that FreePort has returned.
var given sync.Map

// FreePort returns an address of loopback that nobody listens at, each once. It is of this
// process alone, so that neither other tests nor connections, whose ports the system gives
// away, take it meanwhile.
func FreePort(t interface{ Fatal(...any) }) string {
	for pid := os.Getpid(); ; {
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+pid>>16&63, pid>>8&255, pid&255))
		if err != nil { // Some systems have 127.0.0.1 alone.
			l, err = net.Listen("tcp", "127.0.0.1:0")
		}
		if err == nil {
			err = l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, again := given.LoadOrStore(l.Addr().String(), true); !again {
			return l.Addr().String()
		}
	}
}
