package check_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// same returns the sizes of messages that all have n bytes.
func same(n int64) check.Sizes {
	return check.Sizes{Of: func(schedule.Action) int64 { return n }}
}

// TestBytesOfTwoStages proves the exchange of meta-pytorch/torchrec#4472: two ranks send to each other before they
// receive. The study measured it with NCCL on two GPUs, whose connection held 64 MiB: the exchange passes with messages
// of 20, 32 and 64 MiB, and hangs with 65 MiB.
func TestBytesOfTwoStages(t *testing.T) {
	const connection = 64 << 20
	p := plantest.FromText(t, "0 1", 2, firstSends, secondSends)
	for mib, passes := range map[int64]bool{20: true, 32: true, 64: true, 65: false} {
		proof, err := check.ProveBytes(p, connection, same(mib<<20))
		if !passes {
			plantest.RequireCodes(t, err, check.Deadlock)
			require.ErrorContains(t, err, "Ranks 0 and 1 wait for each other: rank 0 is at action 3, 0SEND_F1, and waits for 1RECV_F1 of rank 1;")
			require.ErrorContains(t, err, "0SEND_F1 has 65.0 MiB; the link from rank 0 to rank 1 holds 0 B of 64.0 MiB.")
			continue
		}
		require.NoError(t, err)
		least, err := proof.LeastCapacity()
		require.NoError(t, err)
		require.Equal(t, mib<<20, least)
		links, err := proof.LinkCapacities()
		require.NoError(t, err)
		require.Equal(t, []check.LinkCapacity{
			{From: 0, To: 1, Outputs: true, Capacity: least}, {From: 1, To: 0, Gradients: true, Capacity: least},
		}, links)
	}

	// One rank receives first, as in Megatron-LM's order by the parity of ranks: any size is safe.
	ordered := plantest.FromText(t, "0 1", 2, firstSends, "1RECV_F0 1F0 1B0 1RECV_F1 1SEND_B0 1F1 1B1 1SEND_B1")
	proof, err := check.ProveBytes(ordered, 0, same(65<<20))
	require.NoError(t, err)
	least, err := proof.LeastCapacity()
	require.NoError(t, err)
	require.Zero(t, least)

	_, err = check.ProveBytes(p, connection, same(0))
	plantest.RequireCodes(t, err, check.Malformed)
	_, err = check.ProveBytes(p, -2, same(1))
	require.ErrorContains(t, err, "A link cannot hold -2 bytes")
}

// TestBytesOnChannels compares the verdict on random plans and sizes with their execution by a goroutine for
// each rank. A link is a channel that holds as many bytes as its capacity, and a message of n bytes is n sends on the
// channel.
func TestBytesOnChannels(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 3))
	verdicts := map[bool]int{}
	for run := range 1_000 {
		p, _ := plantest.Grow(rng, plantest.Features{Ranks: 4, Depth: 6, Microbatches: 8, Copies: true, Transfers: true, Runtime: schedule.Runtime(rng.IntN(2))})
		sizes := map[schedule.Action]int64{}
		vary := run%2 == 0
		of := func(send schedule.Action) int64 {
			if !vary {
				send = schedule.NewAction(send.Kind(), send.Stage(), 0)
			}
			if sizes[send] == 0 {
				sizes[send] = 1 + rng.Int64N(6)
			}
			return sizes[send]
		}
		for rank := range p.Programs {
			for a := range p.All(rank) {
				of(plantest.Bare(a))
			}
		}
		proof, err := check.ProveBytes(p, schedule.Unlimited, check.Sizes{Of: of, Vary: vary})
		require.NoError(t, err)
		least, err := proof.LeastCapacity()
		require.NoError(t, err)
		for _, capacity := range []int64{0, max(least-1, 0), least, rng.Int64N(24)} {
			_, err := check.ProveBytes(p, capacity, check.Sizes{Of: of, Vary: vary})
			finishes := finishes(t, p, of, func(check.LinkCapacity) int64 { return capacity })
			require.Equal(t, finishes, err == nil, "seed %d, run %d, capacity %d: %v\n%s", plantest.Seed(), run, capacity, err, plantest.Text(t, p))
			require.Equal(t, capacity >= least, finishes)
			verdicts[finishes]++
		}
		links, err := proof.LinkCapacities()
		require.NoError(t, err)
		most := int64(0)
		for _, l := range links {
			most = max(most, l.Capacity)
		}
		require.Equal(t, least, most)
		require.True(t, finishes(t, p, of, func(of check.LinkCapacity) int64 {
			for _, l := range links {
				if l.From == of.From && l.To == of.To && (l.Outputs && of.Outputs || l.Gradients && of.Gradients) {
					return l.Capacity
				}
			}
			return 0
		}))
	}
	require.Greater(t, min(verdicts[true], verdicts[false]), 100, "%v", verdicts)
}

// finishes reports whether a goroutine for each rank of a plan reaches the end of its program.
func finishes(t *testing.T, p *schedule.Plan, size func(send schedule.Action) int64, capacity func(check.LinkCapacity) int64) bool {
	done := 0
	synctest.Test(t, func(t *testing.T) {
		links := map[check.LinkCapacity]chan byte{}
		received := map[schedule.Action]chan struct{}{} // by send; closed after its receive
		link := func(send schedule.Action) chan byte {
			l := check.LinkCapacity{Outputs: send.Kind() == schedule.SendF, Gradients: send.Kind() == schedule.SendB}
			step := 1
			if l.Gradients {
				step = -1
			}
			l.From, l.To = p.Placement.Rank[send.Stage()], p.Placement.Rank[send.Stage()+step]
			room := capacity(l)
			if p.Runtime == schedule.PyTorch { // both directions share a link
				l.Outputs, l.Gradients = true, true
			}
			if links[l] == nil {
				links[l] = make(chan byte, room)
			}
			return links[l]
		}
		send := func(a schedule.Action) schedule.Action { // returns the send of a receive or a wait
			switch a.Kind() {
			case schedule.RecvF:
				return schedule.NewAction(schedule.SendF, a.Stage()-1, a.Microbatch())
			case schedule.RecvB:
				return schedule.NewAction(schedule.SendB, a.Stage()+1, a.Microbatch())
			case schedule.WaitF:
				return schedule.NewAction(schedule.SendF, a.Stage(), a.Microbatch())
			case schedule.WaitB:
				return schedule.NewAction(schedule.SendB, a.Stage(), a.Microbatch())
			}
			return plantest.Bare(a)
		}
		for rank := range p.Programs {
			for a := range p.All(rank) {
				if a.Kind() == schedule.SendF || a.Kind() == schedule.SendB {
					link(a)
					received[plantest.Bare(a)] = make(chan struct{})
				}
			}
		}
		quit := make(chan struct{})
		var ranks sync.WaitGroup
		var lock sync.Mutex
		for rank := range p.Programs {
			ranks.Go(func() {
				for a := range p.All(rank) {
					from := send(a)
					var bytes int64
					var to, take chan byte
					switch a.Kind() {
					case schedule.SendF, schedule.SendB:
						bytes, to = size(from), link(from)
					case schedule.RecvF, schedule.RecvB:
						bytes, take = size(from), link(from)
					case schedule.WaitF, schedule.WaitB:
						select {
						case <-received[from]:
						case <-quit:
							return
						}
					}
					for range bytes {
						select {
						case to <- 0:
						case <-take:
						case <-quit:
							return
						}
					}
					if take != nil {
						close(received[from])
					}
				}
				lock.Lock()
				done++
				lock.Unlock()
			})
		}
		synctest.Wait() // all ranks have ended, or wait
		close(quit)
		ranks.Wait()
	})
	return done == len(p.Programs)
}

// TestBytesOfRepeats requires that the proof over all repeats of a plan in segments, with sizes that differ by
// stage, agrees with the proof of its list, and that its cost does not grow with the number of microbatches.
func TestBytesOfRepeats(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 4))
	deadlocks := 0
	for _, s := range schedule.Schedules() {
		placement, err := s.Place(4, 4*s.PerRank)
		require.NoError(t, err)
		make := func(microbatches, capacity int) *schedule.Plan {
			p, err := s.Rule(schedule.Params{Placement: placement, Microbatches: microbatches})
			require.NoError(t, err)
			p, err = lower.Transfers(p, capacity)
			require.NoError(t, err)
			return p
		}
		sizes := check.Sizes{Of: func(send schedule.Action) int64 { return int64(2+send.Stage()%3) << 20 }}
		for _, capacity := range []int{1, 3, schedule.Unlimited} {
			short, long := make(40, capacity), make(100_000, capacity)
			least := [3]int64{}
			visited := [3]int64{}
			for i, p := range []*schedule.Plan{short, plantest.Expand(short), long} {
				proof, err := check.ProveBytes(p, schedule.Unlimited, sizes)
				require.NoError(t, err)
				least[i], err = proof.LeastCapacity()
				require.NoError(t, err)
				for range 2 {
					limit := rng.Int64N(least[i] + 8<<20)
					again, err := check.ProveBytes(p, limit, sizes)
					require.Equal(t, limit >= least[i], err == nil, "%s, capacity %d, %d bytes: %v", s.Name, capacity, limit, err)
					if err != nil {
						plantest.RequireCodes(t, err, check.Deadlock)
						deadlocks++
					}
					visited[i] = max(visited[i], again.Visited)
				}
			}
			require.Equal(t, least[1], least[0], s.Name)
			for i, p := range []*schedule.Plan{short, plantest.Expand(short)} { // one large message late in the repeats
				proof, err := check.ProveBytes(p, schedule.Unlimited, check.Sizes{Vary: true, Of: func(send schedule.Action) int64 {
					return 1 + int64(send.Microbatch()/30)
				}})
				require.NoError(t, err)
				least[i], err = proof.LeastCapacity()
				require.NoError(t, err)
			}
			require.Equal(t, least[1], least[0], s.Name)
			require.Less(t, visited[2], long.Actions(0)*4/20, s.Name)
		}
	}
	require.Greater(t, deadlocks, 50)
}
