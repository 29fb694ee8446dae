package testkit

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// given holds the addresses that FreePort has returned.
var given sync.Map

// FreePort returns a loopback address at which no process listens. It returns each address only
// once. If the system allows, the address is specific to this process, so that neither other
// tests nor connections with system-assigned ports use it meanwhile.
func FreePort(t interface{ Fatal(...any) }) string {
	for pid := os.Getpid(); ; {
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+pid>>16&63, pid>>8&255, pid&255))
		if err != nil { // some systems have only 127.0.0.1
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
