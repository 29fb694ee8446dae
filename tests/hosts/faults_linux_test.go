package hosts

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/trainer/launch"
)

var rounds = flag.Int("rounds", 1, "how often each fault of the table happens")

// Limits of the time from a fault to the end of the last process that it ends, on a machine that is not too
// busy. told applies if a connection ends. silent applies if it merely falls silent: a rank notices this
// after ten seconds and tells the others.
const (
	told   = 5 * time.Second
	silent = 20 * time.Second
)

// fault is a row of the table. Each host has one rank of the same number.
type fault struct {
	name   string
	hosts  int
	flags  []string
	as     conditions // of all links from the start
	do     func(*job) // at some time in the training
	ends   []string   // for each host, a pattern for the cause in its error, or "" if its process is killed; nil if the job continues
	within time.Duration
}

// lost is the pattern of the error that names a rank as lost.
func lost(rank any) string { return fmt.Sprintf("rank %v is lost", rank) }

// apart returns the expected errors of all hosts if two of them cannot reach each other, but can reach the
// others. The two may have been about to connect.
func apart(a, b, hosts int) (all []string) {
	for range hosts {
		all = append(all, fmt.Sprintf("rank (%d has received nothing from|%[1]d connects to) rank %d|rank (%[2]d has received nothing from|%[2]d connects to) rank %[1]d", a, b))
	}
	return all
}

// causes finds everything that an error can name as the cause.
var causes = regexp.MustCompile(`rank \d+ is lost|rank \d+ (has received nothing from|connects to) rank \d+`)

func cut(a, b int) func(*job) { return func(j *job) { j.network.cut(a, b, true) } }

func cutFor(a, b int, d time.Duration) func(*job) {
	return func(j *job) {
		j.network.cut(a, b, true)
		time.Sleep(d)
		j.network.cut(a, b, false)
	}
}

func cutOneWay(from, to int) func(*job) {
	return func(j *job) { j.network.cutOneWay(from, to, true) }
}

func signal(host int, s syscall.Signal) func(*job) {
	return func(j *job) { require.NoError(j, j.processes[host].cmd.Process.Signal(s)) }
}

func suspendFor(host int, d time.Duration) func(*job) {
	return func(j *job) {
		signal(host, syscall.SIGSTOP)(j)
		time.Sleep(d)
		signal(host, syscall.SIGCONT)(j)
	}
}

// vanish ends the process of a host whose last packets are lost. The host then comes back without the process.
func vanish(host int) func(*job) {
	return func(j *job) {
		j.network.cut(host, -1, true)
		signal(host, syscall.SIGKILL)(j)
		<-j.processes[host].ended
		j.network.cut(host, -1, false)
	}
}

var (
	lan    = conditions{latency: 10 * time.Millisecond}
	slow   = conditions{latency: 200 * time.Millisecond}
	lossy  = conditions{latency: 10 * time.Millisecond, loss: 0.05}
	narrow = conditions{latency: 10 * time.Millisecond, rate: 1e6}
	all    = conditions{latency: 50 * time.Millisecond, loss: 0.02, rate: 1e6}
	shards = []string{"-replicas", "2", "-shard", "3"}
)

// table has the faults.
var table = []fault{
	{name: "200 ms of latency", hosts: 2, as: slow, flags: []string{"-steps", "5"}},
	{name: "5 % of packets lost", hosts: 2, as: lossy},
	{name: "1 Mbit/s", hosts: 2, as: narrow, flags: []string{"-steps", "5", "-width", "64", "-seq", "64"}},
	{name: "50 ms, 2 % lost, 1 Mbit/s; two replicas, shard 3", hosts: 4, as: all, flags: append(shards, "-steps", "3")},
	{name: "two hosts apart for 7 s", hosts: 2, as: lan, do: cutFor(0, 1, 7*time.Second)},
	{name: "two hosts with 200 ms of latency apart for 6 s", hosts: 2, as: slow, flags: []string{"-steps", "5"}, do: func(j *job) {
		j.await(j.processes[0], "step 1/") // all connections have been made
		cutFor(0, 1, 6*time.Second)(j)
	}},
	{name: "the link between ranks 1 and 2 of 3 cut for 7 s", hosts: 3, as: lan, do: cutFor(1, 2, 7*time.Second)},
	{name: "two hosts apart for 15 s", hosts: 2, as: lan, do: cutFor(0, 1, 15*time.Second), ends: []string{lost(1), lost(0)}, within: silent},
	{name: "two hosts apart", hosts: 2, as: lan, do: cut(0, 1), ends: []string{lost(1), lost(0)}, within: silent},
	{name: "nothing gets from rank 0 to rank 1", hosts: 2, as: lan, do: cutOneWay(0, 1), ends: []string{lost(1), lost(0)}, within: silent},
	{name: "nothing gets from rank 1 to rank 0", hosts: 2, as: lan, do: cutOneWay(1, 0), ends: []string{lost(1), lost("[01]")}, within: silent},
	{name: "the link between ranks 1 and 2 of 3 cut", hosts: 3, as: lan, do: cut(1, 2), ends: apart(1, 2, 3), within: silent},
	{name: "nothing gets from rank 1 to rank 2 of 3", hosts: 3, as: lan, do: cutOneWay(1, 2), ends: apart(1, 2, 3), within: silent},
	{name: "the link between ranks 0 and 2 of 3 cut", hosts: 3, as: lan, do: cut(0, 2), ends: []string{lost(2), lost(2), lost(0)}, within: silent},
	{name: "the host of rank 2 of 3 cut off", hosts: 3, as: lan, do: cut(2, -1), ends: []string{lost(2), lost(2), lost(0)}, within: silent},
	{name: "the host of rank 0 of 3 cut off", hosts: 3, as: lan, do: cut(0, -1), ends: []string{lost("[12]"), lost(0), lost(0)}, within: silent},
	{name: "the link between two replicas cut, shard 3", hosts: 4, as: lan, flags: shards, do: cut(1, 3), ends: apart(1, 3, 4), within: silent},
	{name: "the host of rank 3 cut off, two replicas, shard 3", hosts: 4, as: lan, flags: shards, do: cut(3, -1),
		ends: []string{lost("3"), lost("3"), lost("3"), lost(0)}, within: silent},
	{name: "a process killed", hosts: 3, as: lan, do: signal(1, syscall.SIGKILL), ends: []string{lost(1), "", lost(1)}, within: told},
	{name: "a host vanishes and comes back (half-open connections)", hosts: 3, as: lan, do: vanish(1), ends: []string{lost(1), "", lost(1)}, within: told},
	{name: "rank 1 suspended for 8 s", hosts: 2, as: lan, do: suspendFor(1, 8*time.Second)},
	{name: "rank 1 of 3 suspended for 15 s", hosts: 3, as: lan, do: suspendFor(1, 15*time.Second), ends: []string{lost(1), lost(1), lost(1)}, within: silent},
	{name: "rank 0 of 3 suspended for 15 s", hosts: 3, as: lan, do: suspendFor(0, 15*time.Second), ends: []string{lost(0), lost(0), lost(0)}, within: silent},
}

// outcomes holds the rows of the table with the observed results.
type outcomes struct {
	mu   sync.Mutex
	rows []outcome // as in the table
}

type outcome struct {
	runs          int
	first, latest float64 // seconds
}

func (o *outcomes) add(row int, seconds float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &o.rows[row]
	if r.runs++; r.runs == 1 {
		r.first = math.Inf(1)
	}
	r.first, r.latest = min(r.first, seconds), max(r.latest, seconds)
}

// String returns the table in Markdown.
func (o *outcomes) String() string {
	var b strings.Builder
	b.WriteString("| fault | hosts | outcome | seconds | runs |\n|---|---|---|---|---|\n")
	for i, r := range o.rows {
		f, what := &table[i], "goes on"
		if f.ends != nil {
			what = "ends"
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %.1f to %.1f | %d |\n", f.name, f.hosts, what, r.first, r.latest, r.runs)
	}
	return b.String()
}

// TestFaults trains on several hosts with the faults of the table. Either the job continues, or every
// process ends in time with an error that names the cause and nothing else, and the job is started again.
// The weights must equal those that one process computes without a fault. The reported seconds are the
// duration of the whole job if it continues. Otherwise they are the time from the fault to the end of the
// last process, or of the suspended one.
func TestFaults(t *testing.T) {
	if !*testkit.Long {
		t.Skip("takes minutes: run it with -long")
	}
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	results := &outcomes{rows: make([]outcome, len(table))}
	t.Cleanup(func() { t.Logf("\n%v", results) })
	for range *rounds {
		for i, f := range table {
			wait := time.Duration(random.Int64N(int64(2 * time.Second)))
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				took := f.happens(t, wait).Seconds()
				t.Logf("%.1f s", took)
				results.add(i, took)
			})
		}
	}
}

// happens runs the job, lets the fault happen after a time, and returns the duration to report.
func (f *fault) happens(t *testing.T, wait time.Duration) time.Duration {
	j := &job{T: t, network: newNetwork(t, f.hosts, f.as), folder: t.TempDir(), flags: f.flags}
	want := j.reference()
	start := time.Now()
	j.startAll()
	if f.do != nil {
		j.awaitTraining()
		time.Sleep(wait)
		start = time.Now()
		f.do(j)
	}
	if f.ends == nil {
		j.finish(want)
		return time.Since(start)
	}
	var took time.Duration
	for host, p := range j.processes {
		status := j.status(host)
		said := p.errs.String()
		took = max(took, p.at.Sub(start))
		if f.ends[host] == "" {
			continue
		}
		require.Contains(t, []int{1, launch.Elsewhere}, status, said)
		require.Regexp(t, f.ends[host], said)
		for _, cause := range causes.FindAllString(said, -1) {
			require.Regexp(t, f.ends[host], cause, "host %d names another cause: %s", host, said)
		}
		require.NotContains(t, said, "could not be written")
	}
	require.Less(t, took, f.within)
	for from := range j.processes {
		for to := range j.processes {
			j.network.set(from, to, func(c *conditions) { *c = conditions{} })
		}
	}
	j.startAll()
	j.finish(want)
	return took
}
