package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// The help of every command begins with examples. Those that end on their own on any machine have the exit status 0
// or 1.
func TestExamples(t *testing.T) {
	parser, err := kong.New(&commands{}, kong.Vars{"schedules": "", "version": "", "offload": ""})
	require.NoError(t, err)
	require.Len(t, examples, len(parser.Model.Leaves(true)))
	folder := t.TempDir()
	docs, err := filepath.Abs("../../docs")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(docs, filepath.Join(folder, "docs")))
	t.Chdir(folder)
	for _, example := range examples {
		first, _, _ := strings.Cut(example.lines, "\n")
		help, _, status := weir("", append(strings.Fields(example.command), "--help")...)
		require.Equal(t, good, status, example.command)
		require.Contains(t, help, "For example:\n\n    "+first, example.command)
		switch strings.Fields(example.command)[0] {
		case "launch", "status", "serve", "checkpoint", "completion":
			continue
		}
		for line := range strings.SplitSeq(example.lines, "\n") {
			_, stderr, status := weir("", strings.Fields(line)[1:]...)
			require.Less(t, status, misused, "%s: %s", line, stderr)
		}
	}
}

// The manual page contains every command with its examples and flags, and no line that the formatter would
// take for a request.
func TestManual(t *testing.T) {
	manual, _, status := weir("", "help", "--man")
	require.Equal(t, good, status)
	parser, err := kong.New(&commands{}, kong.Vars{"schedules": "", "version": "", "offload": ""})
	require.NoError(t, err)
	for _, command := range parser.Model.Leaves(true) {
		require.Contains(t, manual, "\n.SS "+roff.Replace(command.Path()))
		for _, flag := range command.Flags {
			if !flag.Hidden {
				require.Contains(t, manual, "\n.B "+roff.Replace(flag.String()))
			}
		}
	}
	for _, example := range examples {
		require.Contains(t, manual, roff.Replace(example.lines))
	}
	sections := regexp.MustCompile(`(?m)^\.SH .*`).FindAllString(manual, -1)
	slices.Sort(sections)
	require.Equal(t, slices.Compact(slices.Clone(sections)), sections, "a section has all commands of its group")
	for _, request := range regexp.MustCompile(`(?m)^['.]\S*`).FindAllString(manual, -1) {
		require.Contains(t, []string{".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".RS", ".RE", ".nf", ".fi"}, request)
	}
}

func TestWholeNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"1e3": "microbatches 1000\n", "1_000": "microbatches 1000\n", "0x10": "microbatches 16\n", "2.5e1": "", "1.0": "", "1e-1": "", "1e19": "", "-1e0": "",
	} {
		stdout, stderr, status := weir("", "plan", "gpipe", "--ranks", "1", "--microbatches", text)
		if want == "" {
			require.Equal(t, misused, status, text)
			require.Contains(t, stderr, "--microbatches", text)
			continue
		}
		require.Contains(t, stdout, want, text)
	}
}

// weir FILE names a command that reads the file.
func TestCommandFor(t *testing.T) {
	for file, command := range map[string]string{
		"hang/dumps.tar.gz": "hang", "trace/rank0.json.gz": "trace", "snapshots/kept-loss.pickle": "mem leaks", "memory-log/plain.jsonl": "mem log",
		"fit/llama-3-8b.json": "fit", "profile/llama-profile.json": "fit", "placement/pinwheel.csv": "place", "hang/front.svg": "check",
	} {
		file = "../../docs/" + file
		fails(t, misused, file+" is a file: a command that reads it is weir "+command+" "+file, "", file)
	}
	_, stderr, _ := weir("", "nothing")
	require.Contains(t, stderr, "unexpected argument nothing")
}

// The name of an output decides its form. For an unknown form, the error lists the forms.
func TestOutputForms(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range []struct{ args, begins string }{
		{"plan 1f1b -o plan.json", "{\n"},
		{"plan 1f1b -o plan.csv", "0F0,"},
		{"plan 1f1b -o plan.txt", "weir plan 1\n"},
		{"convert plan.txt -o copy.json", "{\n"},
		{"convert plan.json -o copy.csv", "0F0,"},
		{"choose --ranks 2 --microbatches 2 -o best.json", "{\n"},
		{"choose --ranks 2 --microbatches 2 -o best.csv", ""},
		{"trace ../docs/trace -o x.svg", ""},
		{"pack x --ranks 2 --tokens 5 -o x.svg", ""},
		{"hang x -o x.gif", ""},
		{"draw 1f1b -o x.png", "\x89PNG\r\n"},
		{"draw 1f1b -o x.gif", ""},
		{"draw 1f1b --json -o x.svg", ""},
		{"plan 1f1b --json -o x.csv", ""},
		{"convert plan.txt --json -o x.csv", ""},
		{"plan 1f1b --json -o x.json", "{\n"},
		{"plan 1f1b --to compute -o y.json", ""},
		{"plan 1f1b --to plan -o y.csv", ""},
		{"plan 1f1b --to comms -o z.csv", "0F0,"},
		{"convert plan.txt --to text -o y.csv", ""},
		{"mem export 1f1b --to csv -o y.json", ""},
	} {
		words := strings.Fields(c.args)
		output := words[len(words)-1]
		_, stderr, status := weir("", words...)
		if c.begins == "" {
			require.Equal(t, misused, status, c.args)
			require.Regexp(t, "end in .|has the extension of ", stderr, c.args)
			require.NoFileExists(t, output)
			continue
		}
		require.Equal(t, good, status, "%s: %s", c.args, stderr)
		text, err := os.ReadFile(output)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), c.begins), "%s wrote %.20q", c.args, text)
	}
}

// A flag that would have no effect is refused, with the remedy.
func TestIdleFlags(t *testing.T) {
	t.Chdir("../../docs")
	for args, says := range map[string]string{
		"plan gpipe --overlap 2":                                    "--overlap has no effect without --offload: give it, or leave out --overlap",
		"plan 1f1b --to compute --capacity 1":                       "compute has computations alone: leave them out",
		"sim 1f1b --seq 8":                                          "--seq has no effect without --costs",
		"sim 1f1b --costs pack/costs.json --layers 1,2,3,4":         "--layers is for a profile, and pack/costs.json has costs of stages",
		"sim 1f1b --q 1":                                            "--q: no stage of the plan quantizes weights: give --quantize",
		"sim 1f1b --far-time 1":                                     "--far-time: the plan copies nothing to far memory: give --offload",
		"choose --ranks 2 --microbatches 4 --far-shared 2":          "--far-shared has no effect without --far-rate",
		"check 1f1b --link-bytes 1MiB --message-bytes 1MiB --seq 8": "--seq has no effect with --message-bytes: leave out one of them",
		"pack pack/small.txt --ranks 4 --tokens 4096 --costs pack/costs.json --tensor 2": "--tensor has no effect without --config",
		"fit fit/llama-3-8b.json --seq 8 --search-time 1s":                               "--search-time has no effect without --best",
		"slots 1f1b --verify x.json --pool stage":                                        "--pool has no effect with --verify",
		"mem plan 1f1b --costs pack/costs.json --rank 1":                                 "--rank has no effect without --csv",
		"mem export 1f1b --to csv --profile placement/profile.json --f 2":                "--f: an export depends on no time: leave it out",
		"hang hang/dumps.tar.gz --ranks 2":                                               "have no effect without --plan or --schedule",
	} {
		_, stderr, status := weir("", strings.Fields(args)...)
		require.Equal(t, misused, status, args)
		require.Contains(t, stderr, says, args)
	}
}

// A key of JSON is a number in all commands, or a list in all commands. For example, ranks is always the number
// of ranks.
func TestKeysOfJSON(t *testing.T) {
	t.Chdir("../../docs")
	numbers, lists := map[string]string{}, map[string]string{} // by key: a command that prints a number or a list
	var walk func(command string, value any)
	walk = func(command string, value any) {
		switch value := value.(type) {
		case []any:
			for _, one := range value {
				walk(command, one)
			}
		case map[string]any:
			for key, one := range value {
				switch one.(type) {
				case float64:
					numbers[key] = command
				case []any:
					lists[key] = command
				}
				walk(command, one)
			}
		}
	}
	for _, command := range []string{
		"check zb-v --ranks 4", "sim zb-v --ranks 4", "choose --ranks 2 --microbatches 4", "place placement/pinwheel.csv", "slots dualpipev --ranks 4 --against zb-v",
		"mem log memory-log/planned.jsonl", "mem plan 1f1b --ranks 2 --profile placement/profile.json", "mem diff memory-log/plain.jsonl memory-log/kept-loss.jsonl",
		"mem leaks snapshots/kept-loss.pickle", "pack pack/small.txt --ranks 4 --tokens 4096 --costs pack/costs.json", "fit fit/llama-3-8b.json --ranks 2 --seq 8192 --no-reserved",
		"fit fit/llama-3-8b.json --ranks 2 --seq 4096 --best --search-time 0s", "hang hang/dumps.tar.gz --schedule 1f1b --stages 4 --microbatches 8", "trace trace --no-choose",
	} {
		stdout, stderr, status := weir("", append(strings.Fields(command), "--json")...)
		require.NotEqual(t, misused, status, "%s: %s", command, stderr)
		var value any
		require.NoError(t, json.Unmarshal([]byte(stdout), &value), command)
		walk(command, value)
	}
	for key, command := range numbers {
		require.NotContains(t, lists, key, "a number in weir %s and a list in weir %s", command, lists[key])
	}
	require.Contains(t, numbers, "ranks")
	require.Contains(t, lists, "per_rank")
}
