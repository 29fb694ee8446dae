package job

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/transport"
	"github.com/weir-ml/weir/transport/tcp"
)

// A flag for several processes is an error in a single process, and so is a contradictory
// launcher.
func TestMeet(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  map[string]string
		want string // "" if the process is alone
	}{
		"alone":                       {},
		"under Slurm, alone":          {env: map[string]string{"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}},
		"under a broken Slurm, alone": {env: map[string]string{"SLURM_PROCID": "x"}},
		"a number":                    {[]string{"-process", "0"}, nil, "-process is for several processes: give -transport too, or start them with weir launch"},
		"certificates":                {[]string{"-tls", "certs"}, nil, "-tls is for several processes"},
		"a broken weir launch":        {nil, map[string]string{"WEIR_RANK": "2", "WEIR_SIZE": "2"}, "WEIR_RANK=2 and WEIR_SIZE=2"},
		"no number of processes":      {[]string{"-transport", "unix:x"}, nil, "the number of processes is unknown"},
	} {
		o := Flags(flag.NewFlagSet("", flag.ContinueOnError))
		require.NoError(t, o.Parse(test.args), name)
		w, err := o.Meet(t.Context(), func(name string) string { return test.env[name] }, func(string) {})
		if test.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, test.want, name)
		}
		require.Nil(t, w, name)
	}
}

// Ranks are assigned to processes in order, replica after replica, so a process may have ranks of several
// replicas.
func TestMeetInReplicas(t *testing.T) {
	for _, test := range []struct {
		replicas, ranks, processes string
		firsts                     []int // of every process
		want                       string
	}{
		{"2", "2", "4", []int{0, 1, 2, 3}, ""},
		{"2", "3", "4", []int{0, 1, 3, 4}, ""},
		{"3", "2", "2", []int{0, 3}, ""},
		{"4", "", "4", []int{0, 1, 2, 3}, ""},
		{"2", "", "4", []int{0, 1, 2, 3}, ""},
		{"2", "2", "5", []int{0}, "-ranks 2 and -replicas 2 make 4 ranks: give at least one for each of the 5 processes"},
		{"0", "2", "2", []int{0}, "-replicas is 0: give at least 1"},
	} {
		for process, first := range test.firsts {
			o := Flags(flag.NewFlagSet("", flag.ContinueOnError))
			args := []string{"-transport", "unix:x", "-launcher", "none", "-replicas", test.replicas, "-processes", test.processes, "-process", fmt.Sprint(process)}
			if test.ranks != "" {
				args = append(args, "-ranks", test.ranks)
			}
			require.NoError(t, o.Parse(args))
			w, err := o.Meet(t.Context(), func(string) string { return "" }, func(string) {})
			if test.want != "" {
				require.ErrorContains(t, err, test.want)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, first, w.First, "%+v, process %d", test, process)
			for rank := range w.Count {
				require.Equal(t, process, w.processOf(first+rank))
			}
			require.Equal(t, process == 0, w.Leads())
			require.Equal(t, o.Ranks, w.RunnerTopology().Ranks)
		}
	}
}

// Flags that contradict each other, or have no effect, are errors that name the flag.
func TestIdleFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"":                                {"-replicas", "2", "-shard", "3", "-gathered", "2"},
		"-replicas is 0: give at least 1": {"-replicas", "0"},
		"-replicas is 33, of 2 ranks each: give at most 64 ranks in all":   {"-replicas", "33", "-ranks", "2"},
		"-shard is 4: give 0 to 3":                                         {"-replicas", "2", "-shard", "4"},
		"-shard is -1: give 0 to 3":                                        {"-replicas", "2", "-shard", "-1"},
		"-shard is for several replicas: give -replicas":                   {"-shard", "1"},
		"-gathered is for -shard 3: leave it out":                          {"-replicas", "2", "-shard", "2", "-gathered", "1"},
		"-gathered is 0: give at least 1":                                  {"-replicas", "2", "-shard", "3", "-gathered", "0"},
		"-microbatches is 3: give at least one for each of the 4 replicas": {"-replicas", "4", "-microbatches", "3"},
		"-keep needs a folder: give -checkpoint":                           {"-keep", "3"},
		"-offload-to is the folder of -offload: give it":                   {"-offload-to", "/tmp"},
		"-sums compares what ranks send each other":                        {"-sums"},
	} {
		o := Flags(flag.NewFlagSet("", flag.ContinueOnError))
		require.NoError(t, o.Parse(args))
		if err := o.Validate(8); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// nowhere is a network without ranks.
type nowhere struct{}

func (nowhere) Listen(string) (net.Listener, error)            { return nil, os.ErrNotExist }
func (nowhere) Dial(context.Context, string) (net.Conn, error) { return nil, os.ErrNotExist }

// If a rank cannot join, the other ranks of the process stop waiting.
func TestJoinEndsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev, err := kernels.NewHost(kernels.HostConfig{})
		require.NoError(t, err)
		w := &Process{First: 1, Count: 2, ranks: 2, meeting: tcp.Config{Address: "nowhere:0", Network: nowhere{}}}
		err = w.Join(t.Context(), []Local{dev, dev})
		require.ErrorContains(t, err, "tcp: rank 2 of 2")
		require.NotErrorIs(t, err, tcp.ErrMissing)
		require.NoError(t, dev.Close())
	})
}

// An error of another rank is a consequence here, in whichever action it arrives.
func TestConsequence(t *testing.T) {
	w := &Process{process: 1, First: 2, Count: 2}
	for want, err := range map[bool]error{true: &tcp.RemoteError{Rank: 0}, false: &tcp.RemoteError{Rank: 3}} {
		require.Equal(t, want, w.consequence(&transport.StepError{Rank: 2, Err: err}))
	}
	require.False(t, w.consequence(&transport.StepError{Rank: 2, Err: os.ErrNotExist}))
	require.True(t, w.consequence(&transport.StepError{Rank: 2, Err: &tcp.LostError{Rank: 0}}))
}

// One exchange that is fast in both directions determines the offset of two clocks, despite
// delays of others.
func TestBehind(t *testing.T) {
	const apart = time.Hour
	var mine, theirs history
	for i := range mine.Began {
		at := time.Duration(i) * time.Second
		mine.Began[i], theirs.Began[i] = at, at+apart
		late := time.Duration((i*7)%16) * time.Millisecond
		mine.Ended[i], theirs.Ended[i] = at+time.Microsecond+late, at+apart+time.Microsecond+(15*time.Millisecond-late)
	}
	require.InDelta(t, apart, mine.behind(&theirs), float64(time.Microsecond))
	require.InDelta(t, -apart, theirs.behind(&mine), float64(time.Microsecond))
}
