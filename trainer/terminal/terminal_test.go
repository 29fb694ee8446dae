package terminal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/terminal"
)

// Control characters in a file's name are shown and not sent to the terminal.
func Example() {
	fmt.Println("reading", terminal.Quote("plan\x1b[31m.csv"))
	// Output: reading plan\x1b[31m.csv
}

// A text is quoted in the same way, in whatever pieces it is written.
func TestWriter(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"step 1\tloss\n":                   "step 1\tloss\n",
		"größe, 大きさ, \\x1b \"a\"\n":        "größe, 大きさ, \\x1b \"a\"\n",
		"\x1b[31mred\x1b[0m\r\a\b\x7f\x00": `\x1b[31mred\x1b[0m\r\a\b\x7f\x00`,
		"\u009b31m \x9b31m \xff":           `\u009b31m \x9b31m \xff`,
		"a\u202egnp.exe\u2066b\u200fc":     `a\u202egnp.exe\u2066b\u200fc`,
		"family 👨\u200d👩\n":                "family 👨\u200d👩\n",
	} {
		for size := 1; size <= len(text)+1; size++ {
			var out bytes.Buffer
			w := terminal.Writer(&out)
			for at := 0; at < len(text); at += size {
				piece := text[at:min(at+size, len(text))]
				n, err := io.WriteString(w, piece)
				require.NoError(t, err)
				require.Equal(t, len(piece), n)
			}
			_, err := io.WriteString(w, ".") // the end of what was held
			require.NoError(t, err)
			require.Equal(t, want+".", out.String(), "in pieces of %d bytes", size)
		}
	}
	require.Equal(t, `a\nb\tc\x1b\xe5`, terminal.Quote("a\nb\tc\x1b\xe5"))
	failed := errors.New("failed")
	_, err := terminal.Writer(broken{failed}).Write([]byte("x"))
	require.Equal(t, failed, err)
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestBold(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	var out bytes.Buffer
	bold := terminal.NewBold(&out)
	for _, part := range []string{"Usa", "ge: x\nFlags:\n  a:\n", "Two words:\n\nno end:"} {
		n, err := bold.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.NoError(t, bold.Flush())
	require.Equal(t, "Usage: x\n\x1b[1mFlags:\x1b[0m\n  a:\n\x1b[1mTwo words:\x1b[0m\n\nno end:", out.String())
	t.Setenv("NO_COLOR", "1")
	require.Nil(t, terminal.NewBold(&out))
}
