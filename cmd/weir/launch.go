//go:build !js

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/transport/tcp"
)

// launchCmd groups the commands that start jobs.
type launchCmd struct {
	Run   launchRunCmd   `cmd:"" default:"withargs" help:"Start the processes of a job on this host."`
	Certs launchCertsCmd `cmd:"" help:"Make certificates for a job on several hosts."`
}

// launchRunCmd starts the processes of a job.
type launchRunCmd struct {
	Processes int           `short:"n" required:"" help:"Number of processes." placeholder:"N"`
	Restarts  int           `help:"Number of times to restart the job after a failure; its command must resume from its last checkpoint." default:"0" placeholder:"N"`
	Grace     time.Duration `help:"Time for the other processes to end after one has failed, before they get SIGTERM, and again before they are killed." default:"15s"`
	Address   string        `help:"Address at which the processes meet, unix:PATH or tcp:HOST:PORT; by default a Unix socket in a new folder." placeholder:"ADDRESS"`
	Command   []string      `arg:"" help:"The command and its arguments, after --."`
}

// Help returns the text that is printed below the flags.
func (launchRunCmd) Help() string {
	return `Each process gets its number in WEIR_RANK, the number of processes in WEIR_SIZE, the address at which they meet in WEIR_ADDRESS and the token of the job in WEIR_TOKEN; examples/train reads them. Each line of output is printed after the process number in brackets. Signals go to all processes.

The exit status is 0, or that of the process that failed first: 128 plus the signal if a signal ended it. A process that ends because another one failed has exit status 3, and is not taken for the cause.`
}

// maxProcesses equals the largest number of ranks of a plan made by name.
const maxProcesses = 1024

// Run runs the job.
func (c *launchRunCmd) Run(s *streams) error {
	if c.Processes < 1 || c.Processes > maxProcesses {
		return usage("launch -n %d: give 1 to %d processes", c.Processes, maxProcesses)
	}
	signals := make(chan os.Signal, 8)
	for _, each := range passedOn {
		if !signal.Ignored(each) { // nohup makes a process ignore SIGHUP
			signal.Notify(signals, each)
		}
	}
	defer signal.Stop(signals)
	job := launch.Job{
		Processes: c.Processes, Command: c.Command, Address: c.Address, Restarts: c.Restarts, Grace: c.Grace,
		Stdout: s.out, Stderr: os.Stderr, Signals: signals,
	}
	status, err := job.Run(context.Background())
	if err != nil {
		return &exitError{status, err}
	}
	return nil
}

// launchCertsCmd makes certificates.
type launchCertsCmd struct {
	Folder string        `arg:"" help:"The folder to make."`
	Valid  time.Duration `help:"How long the certificates are valid." default:"8760h"`
}

// Run makes the certificates.
func (c *launchCertsCmd) Run(s *streams) error {
	if err := tcp.WriteCerts(c.Folder, c.Valid); err != nil {
		return err
	}
	fmt.Fprintf(s.text, "%s has a certificate that all ranks of a job share: copy the folder to every host, and give it as -tls.\n", c.Folder)
	return nil
}
