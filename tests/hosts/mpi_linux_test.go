package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// sshd starts a server on each host, and returns the configuration of its clients.
func (j *job) sshd() (config string) {
	require.NoError(j, os.MkdirAll("/run/sshd", 0o755)) // the server needs it
	path := func(name string) string { return filepath.Join(j.folder, name) }
	out, err := exec.CommandContext(j.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path("key")).CombinedOutput()
	require.NoError(j, err, "%s", out)
	key, err := os.ReadFile(path("key.pub"))
	require.NoError(j, err)
	for name, text := range map[string]string{
		"sshd":  "HostKey " + path("key") + "\nAuthorizedKeysFile " + path("keys") + "\nStrictModes no\nPidFile none\nPermitRootLogin yes\n",
		"ssh":   "Host *\nIdentityFile " + path("key") + "\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n",
		"keys":  string(key),
		"agent": "#!/bin/sh\nexec ssh -F " + path("ssh") + ` "$@"` + "\n",
	} {
		require.NoError(j, os.WriteFile(path(name), []byte(text), 0o700))
	}
	for host := range j.network.names {
		j.start(j.network.command(j.T, host, "/usr/sbin/sshd", "-D", "-e", "-f", path("sshd")))
		require.Eventually(j, func() bool {
			return j.network.command(j.T, 0, path("agent"), fmt.Sprint("host", host), "true").Run() == nil
		}, time.Minute, 100*time.Millisecond)
	}
	return path("agent")
}

// TestMPI starts a job on four hosts over ssh. When a host is cut off, the job ends, and is resumed.
func TestMPI(t *testing.T) {
	if !*testkit.Long {
		t.Skip("takes a minute: run it with -long")
	}
	for library, flags := range map[string][]string{
		"openmpi": {"--allow-run-as-root", "--host", "host0,host1,host2,host3", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
			"--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24", "--mca", "plm_rsh_agent"},
		"mpich": {"-hosts", "host0,host1,host2,host3", "-launcher", "ssh", "-launcher-exec"},
	} {
		t.Run(library, func(t *testing.T) {
			for _, tool := range []string{"mpirun." + library, "mpicc." + library, "/usr/sbin/sshd"} {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skip("NO HOSTS WERE TESTED OVER MPI: install openssh-server and what .ci/mpi installs: ", err)
				}
			}
			j := &job{T: t, network: newNetwork(t, 4, lan), folder: t.TempDir(), flags: append(shards, "-steps", "20")}
			want := j.reference()
			args := append([]string{"mpirun." + library, "-n", "4"}, append(flags, j.sshd())...)
			program := filepath.Join(j.folder, "train")
			build := exec.CommandContext(t.Context(), "go", "build", "-tags", "mpi", "-o", program, "../../examples/train")
			build.Env = append(os.Environ(), "CC=mpicc."+library)
			out, err := build.CombinedOutput()
			require.NoError(t, err, "%s", out)
			args = append(append(args, program), j.train(append(shared, "-transport", "mpi")...)[1:]...)
			run := func(env ...string) {
				cmd := j.network.command(t, 0, args...)
				cmd.Env = append(os.Environ(), env...)
				j.processes = []*process{j.start(cmd)}
			}
			run("MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self") // MPICH would send through the memory that the hosts share
			j.awaitTraining()
			start, first := time.Now(), j.processes[0]
			j.network.cut(3, -1, true)
			for !strings.Contains(first.errs.String(), lost(3)) { // after the first error, mpirun ends the other processes that it reaches
				require.Less(t, time.Since(start), 2*silent, first.errs.String())
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("a process names rank 3 after %.1f s", time.Since(start).Seconds())
			j.network.cut(3, -1, false) // until then, mpirun waits for the host
			require.NotZero(t, j.status(0))
			for _, cause := range causes.FindAllString(first.errs.String(), -1) {
				require.Regexp(t, lost("[03]"), cause, first.errs.String()) // rank 3 has lost rank 0
			}
			run()
			j.finish(want)
		})
	}
}
