package hosts

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// arrivals records when packets arrive.
type arrivals []time.Time

func (a *arrivals) Write(p []byte) (int, error) {
	*a = append(*a, time.Now())
	return len(p), nil
}

// A link delays, loses and spaces packets according to its conditions.
func TestLink(t *testing.T) {
	carried := func(as conditions, packets int, during func(*link)) (arrived arrivals, last time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			start, l := time.Now(), newLink(as)
			for range packets {
				l.send(make([]byte, 1250))
			}
			if during != nil {
				go during(l)
			}
			close(l.queue)
			l.deliver(&arrived)
			require.EqualValues(t, packets-len(arrived), l.lost.Load())
			last = time.Since(start)
		})
		return arrived, last
	}
	arrived, last := carried(conditions{latency: 200 * time.Millisecond}, 100, nil)
	require.Len(t, arrived, 100)
	require.Equal(t, 200*time.Millisecond, last)
	arrived, last = carried(conditions{latency: time.Millisecond, rate: 1e6}, 100, nil)
	require.Len(t, arrived, 51, "10 ms for each, and no more than half a second of them wait")
	require.Equal(t, 511*time.Millisecond, last)
	arrived, _ = carried(conditions{loss: 0.05}, 4000, nil)
	require.InDelta(t, 3800, len(arrived), 60)
	arrived, _ = carried(conditions{cut: true}, 100, nil)
	require.Empty(t, arrived)
	arrived, _ = carried(conditions{rate: 1e6}, 50, func(l *link) {
		time.Sleep(105 * time.Millisecond)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.as.cut = true
	})
	require.Len(t, arrived, 10, "what is on its way is lost too")
}

// Two hosts compute the same weights as one process.
func TestTwoHosts(t *testing.T) {
	testkit.Slow(t)
	f := fault{hosts: 2, as: lan, flags: []string{"-steps", "3"}}
	f.happens(t, 0)
}
