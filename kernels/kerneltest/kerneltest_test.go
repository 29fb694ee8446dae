package kerneltest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/kerneltest"
)

// openHost opens a small host device, which the suite closes.
func openHost(t *testing.T) kernels.Compute {
	h, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	require.NoError(t, err)
	return h
}

// The suite also calls every operation of a device with wrong operands.
func TestNoOperationIsMissing(t *testing.T) {
	host := openHost(t)
	t.Cleanup(func() { require.NoError(t, host.Close()) })
	require.ElementsMatch(t, testkit.Added[kernels.Compute, kernels.Device](), kerneltest.Trials(host), "trials in trials.go")
}

func TestHost(t *testing.T) { kerneltest.Run(t, openHost) }

// The host passes with every instruction set that this processor has, and with threads.
func TestHostOfEveryKind(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	for _, set := range []kernels.Instructions{kernels.Portable, kernels.AVX2, kernels.AVX512, kernels.NEON} {
		if !set.Available() || testkit.Raced && set == kernels.Portable { // the threads are the same
			continue
		}
		t.Run(set.String(), func(t *testing.T) {
			kerneltest.Run(t, func(t *testing.T) kernels.Compute {
				h, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20, Instructions: set, Threads: 2})
				require.NoError(t, err)
				return h
			})
		})
	}
}

func TestNull(t *testing.T) {
	t.Parallel()
	kerneltest.RunNull(t, func(t *testing.T) kernels.Compute {
		target := openHost(t)
		t.Cleanup(func() { require.NoError(t, target.Close()) })
		return kernels.NewNull(target)
	})
}

// The cases can also be run one by one outside of a test.
func Example() {
	d, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	for _, c := range kerneltest.Cases() {
		if c.Name == "layernorm" {
			fmt.Println(c.Check(d))
		}
	}
	// Output: <nil>
}
