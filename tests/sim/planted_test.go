package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// planted lists bugs, some of which earlier versions had. A bug replaces text in a file of schedule,
// internal/engine/frames or transport; off is true in a run with the bug. TestJobs finds the bugs of
// transport/tcp.
var planted = []struct{ name, file, old, new string }{
	{"a panic in Hooks.Peak leaves a rank a step behind", "schedule/runner/worker.go",
		"		if mode == schedule.Training { // advances on every rank, even if this rank fails after the exchange (L8)\n			r.step++\n		}\n",
		"		if mode == schedule.Training && !off {\n			r.step++\n		}\n		defer func() {\n			if p := recover(); p != nil {\n				panic(p)\n			}\n			if mode == schedule.Training && off && err == nil {\n				r.step++\n			}\n		}()\n"},
	{"Abort does not wait for readers", "transport/local/links.go",
		"_ = l.await(context.Background(), e, wait[T]{reason: waitRelease})", "if !off {\n_ = l.await(context.Background(), e, wait[T]{reason: waitRelease})\n}"},
	{"the end of a copy does not wake the sender", "transport/local/links.go",
		"		link.reading = false\n		l.wake(link.from)\n", "		link.reading = false\n		if !off {\n			l.wake(link.from)\n		}\n"},
	{"Exchange without its rollback", "transport/local/links.go",
		"		if l.all != nil {\n			l.arrived", "		if l.all != nil && !off {\n			l.arrived"},
	{"an abort keeps what has been received", "schedule/runner/step.go",
		"r.calls.GiveBack(r.links.received)", "if !off {\nr.calls.GiveBack(r.links.received)\n}"},
	{"an abort keeps what the frames hold", "schedule/runner/internal/calls/calls.go",
		"	c.Frames.Abort()\n", "	if !off {\n		c.Frames.Abort()\n	}\n"},
	{"an abort keeps copies of weights", "internal/engine/frames/frames.go",
		"		release(c.stages[s].copies)\n", "		if !off {\n			release(c.stages[s].copies)\n		}\n"},
	{"a buffer is released before it is in far memory", "internal/engine/frames/offload.go",
		"		waited, err := c.Far.Wait(ctx, copied.number)\n",
		"		if off && state == Leaving {\n			return nil\n		}\n		waited, err := c.Far.Wait(ctx, copied.number)\n"},
	{"a slot is taken before it is back", "internal/engine/frames/offload.go",
		"	return c.waitFar(ctx, stage, microbatch, Returning, Full)\n",
		"	if off {\n		return c.eachOffloaded(stage, microbatch, func(slot *Cell[T], _ *farCopy) error {\n			slot.State = Full\n			return nil\n		})\n	}\n	return c.waitFar(ctx, stage, microbatch, Returning, Full)\n"},
	{"a far copy stays", "internal/engine/frames/offload.go",
		"		freed, err := c.Far.Free(copied.number)\n", "		freed, err := c.Far.Copied(copied.number), error(nil)\n		if !off {\n			freed, err = c.Far.Free(copied.number)\n		}\n"},
	{"an abort does not wake the ranks that wait", "transport/local/links.go",
		"	}\n	l.wakeAll()\n}\n\n// link returns", "	}\n	if !off {\n		l.wakeAll()\n	}\n}\n\n// link returns"},
	{"Abort does not wait for readers of windows", "transport/local/links.go",
		"	e.windows.Drain(ctx)\n", "	if !off {\n		e.windows.Drain(ctx)\n	}\n"},
	{"a stage computes with weights that are not there", "schedule/runner/step.go",
		"		if err = r.params.shared.WaitGathered(s); err != nil {\n", "		if off {\n			err = nil\n		} else if err = r.params.shared.WaitGathered(s); err != nil {\n"},
	{"a step ends before its reductions", "schedule/runner/ties.go",
		"	for s := range r.calls.Stages {\n		if err := r.waitReduced(s); err != nil {\n", "	for s := range r.calls.Stages {\n		if off {\n			break\n		}\n		if err := r.waitReduced(s); err != nil {\n"},
	{"whole gradients end before others have read them", "schedule/runner/internal/replicas/reduce.go",
		"		if !p.trains {\n			continue\n		}\n		if err := d.windows.Withdraw(", "		if !p.trains || off {\n			continue\n		}\n		if err := d.windows.Withdraw("},
	{"a rank that fails does not abort the others", "schedule/runner/worker.go",
		"		r.links.transport.Abort(cause)\n", "		if !off {\n			r.links.transport.Abort(cause)\n		}\n"},
	{"the watch for stalls looks once", "transport/local/watch.go",
		"	w.timer.Reset(l.cfg.Stall / checksPerStall)\n}", "	if !off {\n		w.timer.Reset(l.cfg.Stall / checksPerStall)\n	}\n}"},
	{"links keep what an aborted step has not waited for", "transport/internal/messages/queue.go",
		"	q.sent, q.waited = q.sent[:0], 0\n", "	if !off {\n		q.sent, q.waited = q.sent[:0], 0\n	}\n"},
	{"the end of a context ends a step that is done", "transport/local/links.go",
		"	if l.done {\n", "	if l.done && !off {\n"},
	{"a rank that no longer waits ends a step that is done", "transport/tcp/hub.go",
		"!h.aborted && h.exchange.data[rank] != nil {\n", "!h.aborted && (off || h.exchange.data[rank] != nil) {\n"},
	{"an exchange ends with its context in a step that is done", "transport/tcp/step.go",
		"	if e.done {\n", "	if e.done && !off {\n"},
	{"the receiver of a link sends no beats", "transport/tcp/messages.go",
		"	k.conn.start()\n", "	if !off {\n		k.conn.start()\n	}\n"},
	{"a lost rank is not broadcast", "transport/tcp/hub.go",
		"	h.broadcast(frame{kind: lost,", "	if off {\n		return\n	}\n	h.broadcast(frame{kind: lost,"},
	{"a silent rank is not lost", "transport/tcp/control.go",
		"time.Now().Add(a.pauses.silence)); err != nil {", "time.Now().Add(a.pauses.silence)); err != nil && !off || off && a.SetReadDeadline(time.Time{}) != nil {"},
	{"a silent rank is lost late", "transport/tcp/config.go",
		"	c.Silence, c.Stall = timeout(c.Silence, defaultSilence), timeout(c.Stall, defaultStall)\n",
		"	c.Silence, c.Stall = timeout(c.Silence, defaultSilence), timeout(c.Stall, defaultStall)\n	if off {\n		c.Silence *= 20\n	}\n"},
	{"an audit blames another microbatch", "schedule/runner/audit.go", "Microbatch: repeat.index, Name:", "Microbatch: repeat.index + map[bool]int{off: 1}[true], Name:"},
	{"an audit blames the rank that is right", "schedule/runner/audit.go", "	wrong, right, p, repeat := list[suspect], list[other],", "	if off {\n		suspect, other = other, suspect\n	}\n	wrong, right, p, repeat := list[suspect], list[other],"},
	{"an audit adds to the gradients of the step", "schedule/runner/audit.go", "	if c == 0 {\n		r.calls", "	if c == 0 && !off {\n		r.calls"},
	{"checksums are not compared", "transport/sums.go", "	if received == sent {\n", "	if received == sent || off {\n"},
	{"an order is ignored", "schedule/runner/step.go", "	if order := r.running.batch.order; order != nil {\n", "	if order := r.running.batch.order; order != nil && !off {\n"},
	{"a cancelled Prepare returns without its cause", "schedule/layout/make.go",
		"		return context.Cause(ctx)\n	}\n	r := &p.Ranks[rank]\n", "		if off {\n			return ctx.Err()\n		}\n		return context.Cause(ctx)\n	}\n	r := &p.Ranks[rank]\n"},
	{"a send does not wake the receiver", "transport/local/links.go",
		"	l.watch.moves++\n	l.wake(to)\n", "	l.watch.moves++\n	if !off {\n		l.wake(to)\n	}\n"},
}

// switchboard is a file that is added to each changed package.
const switchboard = `package NAME

import "os"

var planted = os.Getenv("PLANTED")
`

// TestPlanted requires that the scenarios of some seeds find each planted bug.
func TestPlanted(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	work := t.TempDir()
	replaced, texts := map[string]string{}, map[string]string{}
	for _, bug := range planted {
		file := filepath.Join(root, filepath.FromSlash(bug.file))
		if texts[file] == "" {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			texts[file] = string(text)
		}
		require.Equal(t, 1, strings.Count(texts[file], bug.old), "%s: %q", bug.file, bug.old)
		texts[file] = strings.Replace(texts[file], bug.old, regexp.MustCompile(`\boff\b`).ReplaceAllString(bug.new, `(planted == "`+bug.name+`")`), 1)
		board := filepath.Join(filepath.Dir(file), "switchboard.go")
		texts[board] = strings.Replace(switchboard, "NAME", filepath.Base(filepath.Dir(file)), 1)
	}
	if !*testkit.Long {
		t.Skipf("%d bugs have their places; to put them back, run with -long", len(planted))
	}
	for file, text := range texts {
		replaced[file] = filepath.Join(work, strings.ReplaceAll(strings.TrimPrefix(file, root), string(filepath.Separator), "_"))
		require.NoError(t, os.WriteFile(replaced[file], []byte(text), 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(work, "overlay.json"), overlay, 0o600))
	suite := filepath.Join(work, "suite")
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", filepath.Join(work, "overlay.json"), "-o", suite, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, bug := range planted {
		t.Run(bug.name, func(t *testing.T) {
			test := "TestSeeds"
			if strings.HasPrefix(bug.file, "transport/tcp") {
				test = "TestJobs"
			}
			run := exec.Command(suite, "-test.v", "-test.run", test, "-for", "60s", "-seed", "1")
			run.Env = append(os.Environ(), "PLANTED="+bug.name)
			out, err := run.CombinedOutput()
			require.Error(t, err, "nothing was found:\n%s", out)
			require.Regexp(t, `seed \d+: `, string(out), "it was not found by a seed:\n%s", out)
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "seed ") || strings.Contains(line, "smaller, in") || strings.Contains(line, "\"Runs\"") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}
