package launch

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// ErrEnvironment is returned if variables of a launcher are invalid or contradict each other.
var ErrEnvironment = errors.New("launch: the environment contradicts itself")

// Rendezvous is the position of this process in its job, according to its launcher.
type Rendezvous struct {
	Launcher   string // "" if there is none
	Rank, Size int    // Size is 0 if the launcher does not provide it
	Address    string // rank 0's address, as in tcp.Config; "" if the launcher does not provide it
	Token      string // the job's token
}

// String returns a description for messages.
func (p Rendezvous) String() string {
	if p.Launcher == "" {
		return "no launcher"
	}
	text := fmt.Sprintf("process %d of %d, as %s says", p.Rank, p.Size, p.Launcher)
	if p.Size == 0 {
		text = fmt.Sprintf("process %d, as %s says", p.Rank, p.Launcher)
	}
	return text
}

// The environment variables of a job that package launch starts.
const (
	weirRank    = "WEIR_RANK"
	weirSize    = "WEIR_SIZE"
	weirAddress = "WEIR_ADDRESS"
	weirToken   = "WEIR_TOKEN"
)

// Weir is the launcher of this package.
const Weir = "weir launch"

// launchers are the supported launchers, innermost first: a process that is started by one
// launcher within another inherits the variables of both.
var launchers = []struct {
	name, rank, size string
	unsized          bool   // the launcher does not provide the size
	host, port       string // the variables with rank 0's host and port; "" if there are none
}{
	{name: Weir, rank: weirRank, size: weirSize},
	{name: "Open MPI", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE"},
	{name: "PMI", rank: "PMI_RANK", size: "PMI_SIZE"},
	{name: "torchrun", rank: "RANK", size: "WORLD_SIZE", host: "MASTER_ADDR", port: "MASTER_PORT"},
	{name: "Slurm", rank: "SLURM_PROCID", size: "SLURM_NTASKS"},
	{name: "Kubernetes", rank: "JOB_COMPLETION_INDEX", unsized: true},
}

// Find returns the position that the innermost launcher defines in an environment. Token is WEIR_TOKEN under
// every launcher, and also without one.
func Find(getenv func(name string) string) (Rendezvous, error) {
	p := Rendezvous{Token: getenv(weirToken)}
	for _, l := range launchers {
		rank, size := getenv(l.rank), ""
		if rank == "" {
			continue
		}
		if !l.unsized {
			size = getenv(l.size)
		}
		p.Launcher = l.name
		var err error
		if p.Rank, err = strconv.Atoi(rank); err != nil || p.Rank < 0 {
			return p, fmt.Errorf("%w: %s says %s=%q: it is not a rank", ErrEnvironment, l.name, l.rank, rank)
		}
		if !l.unsized {
			if p.Size, err = strconv.Atoi(size); err != nil || p.Size < 1 {
				return p, fmt.Errorf("%w: %s says %s=%s and %s=%q: it is not a number of processes", ErrEnvironment, l.name, l.rank, rank, l.size, size)
			}
			if p.Rank >= p.Size {
				return p, fmt.Errorf("%w: %s says %s=%d and %s=%d: ranks are numbered from 0", ErrEnvironment, l.name, l.rank, p.Rank, l.size, p.Size)
			}
		}
		if l.rank == weirRank {
			p.Address = getenv(weirAddress)
		}
		if host, port := getenv(l.host), getenv(l.port); l.host != "" && host != "" {
			if port == "" {
				return p, fmt.Errorf("%w: %s says %s=%s and no %s", ErrEnvironment, l.name, l.host, host, l.port)
			}
			p.Address = "tcp:" + net.JoinHostPort(host, port)
		}
		return p, nil
	}
	return p, nil
}
