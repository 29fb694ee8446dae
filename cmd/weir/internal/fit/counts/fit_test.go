// Package counts compares counts of parameters with those of the libraries that build the models.
package counts

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/schedule/units"
)

// built is a model that a library has built.
type built struct {
	Name, Text string
	Parameters int64
}

// counted returns the models of a script. PYTHON names the Python that run.sh has made.
func counted(t *testing.T, script string) (list []built) {
	python := os.Getenv("PYTHON")
	if python == "" {
		t.Skip("PYTHON names no Python with transformers and megatron-core: run cmd/weir/internal/fit/counts/run.sh")
	}
	command := exec.CommandContext(t.Context(), python, script)
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	require.NoError(t, err, "%s", errs.String())
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var one built
		require.NoError(t, decoder.Decode(&one))
		list = append(list, one)
	}
	require.NotEmpty(t, list)
	return list
}

// compare reads the models and compares their parameters. A count may differ only if fit names keys
// that it did not read, and an error of fit must say what to pass with --set.
func compare(t *testing.T, list []built) {
	equal, named := 0, 0
	for _, one := range list {
		c, err := fit.Read(strings.NewReader(one.Text), nil)
		if err != nil {
			if t.Logf("%s: refused: %v", one.Name, err); !strings.Contains(err.Error(), "--set") {
				t.Errorf("the error of %s has no remedy: %v\n%s", one.Name, err, one.Text)
			}
			named++
			continue
		}
		n := c.Model.Parameters(max(c.Setup.Tensor, 1), c.Model.Family == "megatron")
		switch {
		case n == one.Parameters:
			equal++
		case len(c.Unread) > 0:
			t.Logf("%s: %d, the library has %d; not read: %v", one.Name, n, one.Parameters, c.Unread)
			named++
		default:
			t.Errorf("%s: %d, the library has %d: %+v\n%s", one.Name, n, one.Parameters, c.Model, one.Text)
		}
		if !strings.Contains(one.Name, ",") {
			t.Logf("| %s | %s | %s | %s |", one.Name, units.Count(n), units.Count(one.Parameters), strings.Join(c.Unread, ", "))
		}
	}
	t.Logf("%d of %d equal, %d named or refused", equal, len(list), named)
}

func TestTransformers(t *testing.T) { compare(t, counted(t, "transformers_counts.py")) }

func TestMegatron(t *testing.T) { compare(t, counted(t, "megatron_counts.py")) }
