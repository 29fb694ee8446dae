package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestSlots checks the exit status and the output of each use of the command: printing a table, comparing
// it with a plan or a file, and verifying it.
func TestSlots(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) { require.NoError(t, os.WriteFile(name, []byte(text), 0o644)) }
	table, _, status := weir("", "slots", "zb-v", "--runtime", "pytorch", "--evaluation", "--json")
	require.Equal(t, good, status)
	write("table.json", table)
	write("wrong.json", strings.Replace(table, `"slots":[0,1`, `"slots":[1,1`, 1))
	write("broken.json", strings.Replace(table, `"pools"`, `"pool"`, 1))
	write("wider.json", strings.Replace(table, `"slots":2}`, `"slots":9}`, 1))
	write("unsimulated.json", strings.Replace(table, `"sends": 1,`, "", 1))
	plan, _, status := weir("", "plan", "zb-v", "--forward-only", "--capacity", "0", "--to", "plan", "--runtime", "pytorch")
	require.Equal(t, good, status)
	write("plan.json", plan)
	for _, c := range []struct {
		args   string
		status int
		says   string // on standard output or standard error
	}{
		{"zb-v --runtime pytorch --evaluation --against table.json", good, "slots, before"},
		{"zb-v --runtime pytorch --evaluation --verify table.json", good, "ok: no slot"},
		{"zb-v --runtime pytorch --evaluation --verify table.json --json", good, `"valid": true`},
		{"zb-v --runtime pytorch --verify table.json", atFault, "it has 2 plans, and the command line names 1"},
		{"zb-v --runtime pytorch --evaluation --verify wrong.json", atFault, "wrong.json: rank 0, action "},
		{"zb-v --runtime pytorch --evaluation --verify wrong.json --json", atFault, `"rank": 0`},
		{"zb-v --runtime pytorch --evaluation --verify wider.json", atFault, "pool 0 has 9 slots, and the plans need 2"},
		{"zb-v --runtime pytorch --evaluation --against table.json -o picture.svg", misused, "can't be used together"},
		{"zb-v --runtime pytorch --evaluation --verify broken.json", misused, "broken.json:"},
		{"zb-v --runtime pytorch --evaluation --against broken.json", misused, "broken.json:"},
		{"zb-v --runtime pytorch --evaluation --verify nothing.json", misused, "nothing.json"},
		{"zb-v --runtime pytorch --against 1f1b", atFault, "worse"},
		{"1f1b --runtime pytorch --against zb-v", good, "rank 0, saved: 4, before 8\n"},
		{"1f1b --runtime pytorch --against zb-v --json", good, `"was": 93`},
		{"zb-v --hold taken --against table.json", misused, "give both the same"},
		{"zb-v --runtime pytorch --pool stage --with plan.json", good, "or zb-v, forward-only"},
		{"zb-v --with 1f1b --ranks 2", good, "or 1f1b, training"},
		{"zb-v --with plan.json --ranks 2", misused, "2 ranks and \"zb-v\" has 4"},
		{"zb-v --against nothing", misused, "there is no file of that name either"},
		{"zb-v -o picture.gif", misused, "end in .svg"},
		{"zb-v --ranks 1 --stages 2", good, "saved, rank 0"},
		{"dualpipev -o page.html", good, "slots"},
	} {
		stdout, stderr, status := weir("", append([]string{"slots"}, strings.Fields(c.args)...)...)
		require.Equal(t, c.status, status, "%s: %s", c.args, stderr)
		require.Contains(t, stdout+stderr, c.says, c.args)
	}
	stdout, _, status := weir("", "slots", "zb-v", "--runtime", "pytorch", "--evaluation", "--against", "unsimulated.json")
	require.Equal(t, good, status)
	require.NotContains(t, stdout, "unreleased sends") // the file does not say how many it has
	page := testkit.Read(t, "page.html")
	require.Contains(t, page, `"name":"received 0"`)
}

// TestSlotsPicture draws the picture of docs/slots.md; -update writes it.
func TestSlotsPicture(t *testing.T) {
	picture := t.TempDir() + "/zb-v.svg"
	_, stderr, status := weir("", "slots", "zb-v", "--ranks", "2", "--microbatches", "6", "--runtime", "pytorch", "-o", picture)
	require.Equal(t, good, status, stderr)
	svg := []byte(testkit.Read(t, picture))
	t.Chdir("../../docs/slots")
	require.NoError(t, compareOrUpdate("zb-v.svg", svg))
}

// TestFixtures compares the output of weir slots --against --json with the output of earlier versions.
func TestFixtures(t *testing.T) {
	testkit.Format{
		Name: "slots-against-%d.json", Mark: "\"schema\": %d", Number: 1,
		Write: func(t *testing.T) []byte { return testkit.Filled[slotsDiff](t, 1) },
	}.Test(t)
}
