package launch_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/launch"
)

// The variables that launchers set, some of them nested.
func TestFind(t *testing.T) {
	slurm := map[string]string{"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
	for name, test := range map[string]struct {
		env  map[string]string
		want launch.Rendezvous
	}{
		"none":       {nil, launch.Rendezvous{}},
		"Slurm":      {slurm, launch.Rendezvous{Launcher: "Slurm", Rank: 3, Size: 8}},
		"Open MPI":   {with(slurm, "OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE", "2", "PMIX_RANK", "1"), launch.Rendezvous{Launcher: "Open MPI", Rank: 1, Size: 2}},
		"PMI":        {with(slurm, "PMI_RANK", "0", "PMI_SIZE", "2", "WEIR_TOKEN", "s"), launch.Rendezvous{Launcher: "PMI", Size: 2, Token: "s"}},
		"torchrun":   {with(slurm, "RANK", "1", "WORLD_SIZE", "4", "MASTER_ADDR", "::1", "MASTER_PORT", "29500"), launch.Rendezvous{Launcher: "torchrun", Rank: 1, Size: 4, Address: "tcp:[::1]:29500"}},
		"Kubernetes": {with(nil, "JOB_COMPLETION_INDEX", "5"), launch.Rendezvous{Launcher: "Kubernetes", Rank: 5}},
		"weir":       {with(slurm, "RANK", "x", "WEIR_RANK", "1", "WEIR_SIZE", "2", "WEIR_ADDRESS", "unix:/j", "WEIR_TOKEN", "t"), launch.Rendezvous{Launcher: "weir launch", Rank: 1, Size: 2, Address: "unix:/j", Token: "t"}},
	} {
		got, err := launch.Find(func(name string) string { return test.env[name] })
		require.NoError(t, err, name)
		require.Equal(t, test.want, got, name)
	}
	for fault, env := range map[string]map[string]string{
		"SLURM_PROCID=8 and SLURM_NTASKS=8":              with(nil, "SLURM_PROCID", "8", "SLURM_NTASKS", "8"),
		`PMI_RANK=0 and PMI_SIZE=""`:                     with(nil, "PMI_RANK", "0"),
		`OMPI_COMM_WORLD_RANK="-1"`:                      with(slurm, "OMPI_COMM_WORLD_RANK", "-1", "OMPI_COMM_WORLD_SIZE", "2"),
		"torchrun says MASTER_ADDR=h and no MASTER_PORT": with(nil, "RANK", "0", "WORLD_SIZE", "1", "MASTER_ADDR", "h"),
	} {
		_, err := launch.Find(func(name string) string { return env[name] })
		require.ErrorIs(t, err, launch.ErrEnvironment)
		require.ErrorContains(t, err, fault)
	}
}

// with returns an environment with additional variables.
func with(env map[string]string, more ...string) map[string]string {
	all := map[string]string{}
	for name, value := range env {
		all[name] = value
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// A command passes its environment, here that of the second of four tasks under Slurm.
func ExampleFind() {
	env := map[string]string{"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
	place, err := launch.Find(func(name string) string { return env[name] })
	fmt.Println(place, err)
	// Output: process 1 of 4, as Slurm says <nil>
}
