package hosts

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// shared lists the flags of the trainer with which a job resumes from its last checkpoint.
var shared = []string{"-checkpoint", "saved", "-resume", "saved", "-checkpoint-every", "1", "-run", "run", "-json", "summary"}

// await waits until a process has printed a text.
func (j *job) await(p *process, text string) {
	for !strings.Contains(p.out.String()+p.errs.String(), text) {
		select {
		case <-p.ended:
			require.Contains(j, p.out.String()+p.errs.String(), text)
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// weir launch starts a job on four hosts. When a host is cut off, all processes end, and weir launch
// starts them again.
func TestLaunch(t *testing.T) {
	if !*testkit.Long {
		t.Skip("takes half a minute: run it with -long")
	}
	j := &job{T: t, network: newNetwork(t, 4, lan), folder: t.TempDir(), flags: append(shards, "-steps", "20")}
	want := j.reference()
	folder, err := programs()
	require.NoError(t, err)
	onHost := []string{filepath.Join(folder, "weir"), "launch", "-n", "4", "--restarts", "1", "--address", "tcp:host0:29500", "--",
		"sh", "-c", `exec ip netns exec "$0$WEIR_RANK" "$@"`, strings.TrimSuffix(j.network.names[0], "0")}
	p := j.start(exec.CommandContext(t.Context(), onHost[0], slices.Concat(onHost[1:], j.train(append(shared, "-tls", filepath.Join(folder, "certs"))...))...))
	j.processes = []*process{p}
	j.await(p, "folder")
	start := time.Now()
	j.network.cut(3, -1, true)
	j.await(p, "starting again, 1 of 1")
	t.Logf("starts again after %.1f s", time.Since(start).Seconds())
	j.network.cut(3, -1, false)
	j.finish(want)
	require.Contains(t, p.errs.String(), lost(3))
}
