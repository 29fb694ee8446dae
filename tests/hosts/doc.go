// Package hosts tests training on several hosts, with the faults of real networks and machines.
//
// A host is a network namespace of this machine, with an address, names for all hosts, and one device:
// the end of a TUN device whose other end this process reads. A router in this process carries packets
// between hosts, and each direction between two hosts has its own latency, loss, rate and cuts. The
// processes on the hosts are examples/train and weir launch, over sockets and MPI, on the kernel's TCP.
//
// The tests need root, /dev/net/tun and the command ip of iproute2, and are skipped with the reason if
// one is missing.
package hosts
