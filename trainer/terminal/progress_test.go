package terminal_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/terminal"
)

// If the output is not a terminal, there are at most 16 lines.
func ExampleProgress() {
	line := terminal.NewProgress(os.Stdout, terminal.Columns(os.Stdout), 0, 8000)
	for step := 1; step <= 8000; step++ {
		line.Step(step, func(time.Duration) (long, short string) {
			if step < 7500 {
				return "...", ""
			}
			return fmt.Sprintf("step %d/8000  loss %.2f", step, 5/float64(step)), ""
		})
	}
	line.End()
	// Output:
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// ...
	// step 7500/8000  loss 0.00
	// step 8000/8000  loss 0.00
}

// On a terminal the line is rewritten ten times a second, fits, and covers the one before.
func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		line := terminal.NewProgress(&out, 20, 2, 1002)
		asked := 0
		for step := 3; step <= 1002; step++ {
			time.Sleep(10 * time.Millisecond)
			line.Step(step, func(left time.Duration) (long, short string) {
				asked++
				if step < 100 {
					return strings.Repeat("µ", 19), ""
				}
				return strings.Repeat("long", 5), fmt.Sprint(step, " ", left)
			})
		}
		line.End()
		line.End()
		lines := strings.Split(out.String(), "\r")
		require.Equal(t, asked+1, len(lines))
		require.InDelta(t, 100, asked, 2)
		require.Equal(t, strings.Repeat("µ", 19), lines[1])
		require.Equal(t, "1002 0s\n", strings.ReplaceAll(lines[len(lines)-1], " \n", "\n"))
		require.Contains(t, out.String(), "503 5s")
		for _, l := range lines[1 : len(lines)-1] {
			require.LessOrEqual(t, len([]rune(l)), 19)
		}
		covered := false
		for i, l := range lines[2:] {
			covered = covered || strings.Count(lines[i+1], "µ") == 19 && len(l) == 19 && !strings.Contains(l, "µ")
		}
		require.True(t, covered, "a shorter line covers the one before")
	})
}

func TestColumns(t *testing.T) {
	require.Zero(t, terminal.Columns(&bytes.Buffer{}))
	file, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer file.Close()
	require.Zero(t, terminal.Columns(file))
}
