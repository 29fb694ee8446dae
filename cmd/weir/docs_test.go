package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
)

var (
	// pageBlock matches a code block of a page: its mark, which is an HTML comment on the line before
	// the block, its language, and its text.
	pageBlock = regexp.MustCompile("(?ms)(?:^<!-- (in|not run:) ([^\n]*?) -->\n)?^```(\\w*)\n(.*?)^```\n")
	prompt    = regexp.MustCompile(`(?m)^\$ `)
)

// TestDocumented runs the console blocks of README.md, CONTRIBUTING.md and the pages in docs, and compares the
// pages with the output. The blocks run in a folder with a copy of docs. A line
// that begins with $ is a command. Commands may be piped into each other with | and written to a file with >. A
// line of three dots in an output stands for any lines. A block marked "not run" is counted but not run. The
// text of a block marked "in FILE" must be in the file. -update rewrites the pages.
func TestDocumented(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	bin := t.TempDir()
	commands, all, left := 0, 0, 0
	for _, path := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			page := []byte(testkit.Read(t, path))
			t.Chdir(t.TempDir())
			require.NoError(t, os.CopyFS("docs", os.DirFS(filepath.Join(root, "docs"))))
			require.NoError(t, os.CopyFS("tests/pytorch/testdata", os.DirFS(filepath.Join(root, "tests/pytorch/testdata"))))
			blocks := 0
			fresh := pageBlock.ReplaceAllStringFunc(string(page), func(block string) string {
				match := pageBlock.FindStringSubmatch(block)
				mark, marked, language, text := match[1], match[2], match[3], match[4]
				if mark == "in" {
					program := testkit.Read(t, filepath.Join(root, marked))
					require.Contains(t, program, text, "the block is not in %s", marked)
				}
				if language != "console" {
					require.NotRegexp(t, prompt, text, "a block with commands begins with ```console")
					return block
				}
				blocks++
				if mark != "" {
					left++
					t.Logf("not run: %s: %s", marked, text[:strings.IndexByte(text, '\n')])
					return block
				}
				var b strings.Builder
				for _, part := range prompt.Split(text, -1)[1:] {
					command, shown, _ := strings.Cut(part, "\n")
					commands++
					printed := shell(t, root, bin, command)
					if abridged := strings.ReplaceAll(regexp.QuoteMeta(shown), `\.\.\.`+"\n", "(?s:.*)"); regexp.MustCompile("^" + abridged + "$").MatchString(printed) {
						printed = shown
					}
					b.WriteString("$ " + command + "\n" + printed)
				}
				return strings.Replace(block, text, b.String(), 1)
			})
			require.Equal(t, strings.Count(string(page), "```console"), blocks, "blocks that begin or end in the middle of a line")
			all += blocks
			if *testkit.Update {
				require.NoError(t, os.WriteFile(path, []byte(fresh), 0o644))
				return
			}
			require.Equal(t, fresh, string(page), "go test ./cmd/weir -update writes the page anew")
		})
	}
	t.Logf("%d commands in %d blocks were run, %d blocks were not", commands, all-left, left)
}

// TestREADMECommands runs the commands in the README's text and tables, in order and in a folder with docs,
// so that a visitor can copy each of them. A command may report findings, but not that it was misused.
func TestREADMECommands(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	elsewhere := map[string]string{
		"go install ./cmd/weir":   "it changes the machine",
		"go run ./cmd/weir serve": "it serves until it is stopped",
	}
	text := testkit.Read(t, filepath.Join(root, "README.md"))
	t.Chdir(t.TempDir())
	require.NoError(t, os.CopyFS("docs", os.DirFS(filepath.Join(root, "docs"))))
	bin, ran := t.TempDir(), 0
	for _, quoted := range regexp.MustCompile("`((?:weir|go|python3|cd) [^`\n]*)`").FindAllStringSubmatch(pageBlock.ReplaceAllString(text, ""), -1) {
		command := quoted[1]
		if _, there := elsewhere[command]; there {
			delete(elsewhere, command)
			continue
		}
		ran++
		if !strings.HasPrefix(command, "weir ") {
			shell(t, root, bin, command)
			continue
		}
		out := shell(t, root, bin, command+"; echo $?")
		require.Contains(t, []string{"0", "1"}, out[max(len(out)-2, 0):len(out)-1], "%s: %s", command, out)
	}
	require.Empty(t, elsewhere, "not in the README")
	t.Logf("%d commands were run", ran)
}

func TestEveryScheduleIsListed(t *testing.T) {
	page := testkit.Read(t, "../../docs/cli.md")
	for _, s := range schedule.Schedules() {
		require.Contains(t, page, "`"+s.Name+"`")
	}
}

// TestJSONKeysAreDocumented requires that the section of docs/cli.md about a command names every key of its --json
// output.
func TestJSONKeysAreDocumented(t *testing.T) {
	page := testkit.Read(t, "../../docs/cli.md")
	sections := map[string]string{}
	for section := range strings.SplitSeq(page, "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		for name := range strings.SplitSeq(title, " and ") {
			sections[name] = text
		}
	}
	t.Chdir("../../docs")
	free := []string{"peak_by_class", "classes", "peak_classes", "others"} // the keys in these objects are names
	missing := map[string]bool{}
	for _, line := range []string{
		"check zb-v --runtime pytorch", "check hang/front.svg", "sim zb-v --latency 0.1", "sim zb-v --replicas 2 --shard 3 --costs offload/interleaved.json",
		"choose --ranks 4 --microbatches 8 --cap 4", "place placement/pinwheel.csv", "mem log memory-log/planned.jsonl", "mem diff memory-log/plain.jsonl memory-log/kept-loss.jsonl",
		"mem plan 1f1b --ranks 2 --profile placement/profile.json --what-if", "mem leaks snapshots/kept-loss.pickle",
		"pack pack/small.txt --ranks 4 --tokens 4096 --costs pack/costs.json", "fit fit/llama-3-8b.json --ranks 2 --seq 4096 --memory 80GiB",
		"fit fit/llama-3-8b.json --ranks 2 --seq 4096 --best --search-time 0s",
		"hang hang/dumps.tar.gz", "trace trace",
	} {
		stdout, stderr, _ := weir("", append(strings.Fields(line), "--json")...)
		var value any
		require.NoError(t, json.NewDecoder(strings.NewReader(stdout)).Decode(&value), "%s: %s", line, stderr)
		words := strings.Fields(line)
		section := sections[words[0]]
		if words[0] == "mem" {
			section = sections[strings.Join(words[:2], " ")]
		}
		var visit func(value any)
		visit = func(value any) {
			switch value := value.(type) {
			case []any:
				for _, one := range value {
					visit(one)
				}
			case map[string]any:
				for key, one := range value {
					if !strings.Contains(section, "`"+key+"`") {
						missing[words[0]+" "+key] = true
					}
					if !slices.Contains(free, key) {
						visit(one)
					}
				}
			}
		}
		visit(value)
	}
	require.Empty(t, missing, "keys without a description")
}

// shell runs a line of commands that are joined by pipes (weir, programs of examples, python3, cat
// and sed), and returns the output as a terminal shows it. Programs are built into bin.
func shell(t *testing.T, root, bin, line string) string {
	t.Helper()
	line = strings.ReplaceAll(line, "go run ./cmd/weir", "weir")
	line, file, redirected := strings.Cut(line, " > ")
	line, echo, echoes := strings.Cut(line, "; ")
	var in, shown string
	status := 0
	for _, command := range strings.Split(line, " | ") {
		var out, errs bytes.Buffer
		words := strings.Fields(command)
		switch words[0] {
		case "weir":
			status = run(words[1:], strings.NewReader(in), &out, &errs)
		case "go": // go run ./examples/NAME
			program := filepath.Join(bin, filepath.Base(words[2]))
			built, err := exec.Command("go", "build", "-C", root, "-o", program, words[2]).CombinedOutput()
			require.NoError(t, err, "%s", built)
			printed, err := exec.Command(program, words[3:]...).CombinedOutput()
			require.NoError(t, err, "%s", printed)
			out.Write(printed)
		case "python3":
			printed, err := exec.Command(words[0], words[1:]...).Output()
			require.NoError(t, err)
			out.Write(printed)
		case "cat":
			content := []byte(testkit.Read(t, words[1]))
			out.Write(content)
		case "sed": // sed s/A/B/
			parts := strings.Split(strings.Trim(words[1], "'"), "/")
			require.Contains(t, in, parts[1], "what sed should replace")
			out.WriteString(strings.Replace(in, parts[1], parts[2], 1))
		default:
			t.Fatalf("%q is not run here", words[0])
		}
		in = out.String()
		shown += errs.String()
	}
	if redirected {
		require.NoError(t, os.WriteFile(file, []byte(in), 0o644))
		return shown
	}
	if echoes {
		require.Equal(t, "echo $?", echo)
		return shown + in + string(rune('0'+status)) + "\n"
	}
	return shown + in
}
