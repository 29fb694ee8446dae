package browser

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
)

// The page draws a schedule when it has loaded, another schedule when the user selects it (with -long, every
// schedule), and the schedule again when a key moves a slider.
func TestDraw(t *testing.T) {
	w := open(t, "", chromedp.EmulateViewport(1280, 800))
	w.drawn("1f1b: 4 ranks")
	require.Contains(t, w.text("#facts"), "27.3 %", "the bubble of 3 in 11")
	t.Logf("first drawing after %.2f s, %.2f MB over the wire",
		run[float64](w, `performance.getEntriesByName("drawing")[0].startTime / 1000`),
		run[float64](w, `performance.getEntriesByType("resource").reduce((sum, one) => sum + one.transferSize, 0) / 1e6`))
	w.picture("desktop")
	w.do(chromedp.Focus(`[name="microbatches"]`), chromedp.KeyEvent(kb.ArrowRight))
	w.drawn("9 microbatches")
	for _, s := range schedule.Schedules() {
		if s.Name != "interleaved" && s.Name != "dualpipe" && !*testkit.Long {
			continue
		}
		run[bool](w, `(() => { const list = document.forms.draw.schedule; list.value = %q; return list.dispatchEvent(new Event("change", {bubbles: true})) })()`, s.Name)
		w.drawn(s.Name)
	}
	run[bool](w, `(() => { const form = document.forms.draw; form.schedule.value = "zb-v"; form.per.value = 3; return form.per.dispatchEvent(new Event("input", {bubbles: true})) })()`)
	w.wait(`document.getElementById("draw-status").textContent.includes("zb-v does not run 12 stages")`) // the command's error
}

// files lists an input of every kind, with words from its report.
var files = []struct {
	name   string
	paths  []string
	report string
}{
	{"a plan of PyTorch", []string{"../../cmd/weir/testdata/1f1b.csv"}, "makespan"},
	{"an order of Megatron", []string{"../../cmd/weir/testdata/interleaved.order"}, "makespan"},
	{"a plan in JSON", []string{"../../cmd/weir/testdata/zb1p.json"}, "makespan"},
	{"a memory log", []string{"../../docs/memory-log/kept-loss.jsonl"}, "grows"},
	{"a memory snapshot", []string{"../../docs/snapshots/kept-loss.pickle"}, "loss.py:31"},
	{"dumps", []string{"../../docs/hang/dumps.tar.gz"}, "rank 5 stopped"},
	{"traces", []string{"../../docs/trace/rank0.json.gz", "../../docs/trace/rank1.json.gz", "../../docs/trace/rank2.json.gz", "../../docs/trace/rank3.json.gz"}, "simulated"},
	{"a model", []string{"../../docs/fit/llama-3-8b.json"}, "GiB"},
	{"lifetimes to place", []string{"../../docs/placement/pinwheel.csv"}, "lower_bound"},
}

// For a dropped file of each kind, the page shows the report that the command prints on this machine.
func TestFiles(t *testing.T) {
	w := open(t, "")
	for _, f := range files {
		t.Run(f.name, func(t *testing.T) {
			w.t = t
			folder := t.TempDir()
			for _, path := range f.paths {
				content := []byte(testkit.Read(t, path))
				require.NoError(t, os.WriteFile(filepath.Join(folder, filepath.Base(path)), content, 0o666))
			}
			w.drop(f.paths...)
			require.Regexp(t, `^Done in`, w.text("#read-status"))
			printed := w.text("#output")
			require.Contains(t, printed, f.report)
			clock := regexp.MustCompile(`seconds .*`)
			require.Equal(t, clock.ReplaceAllString(command(t, folder, run[string](w, "document.getElementById('command').value")), ""), clock.ReplaceAllString(printed, ""))
			entries, err := os.ReadDir(folder)
			require.NoError(t, err)
			require.Equal(t, len(entries)-len(f.paths), run[int](w, "document.querySelectorAll('#made a').length"), "files that the command made")
		})
	}
	w.picture("files")
}

// A hostile file leads to an error. None of its contents becomes a part of the page.
func TestHostileFiles(t *testing.T) {
	const script = `<img src=x onerror=alert(1)>`
	w := open(t, "")
	deep := strings.Repeat("[", 1<<20)
	for name, content := range map[string]string{
		"plan.json":               `{"schema":1,"name":"` + script + `","programs":[]}`,
		script + ".csv":           "0F0," + script,
		"-o.csv":                  "0F0,0B0\x1b]0;title\x07",
		"log.jsonl":               `{"step":0,"rank":0,"microbatch":0,"allocated":"` + script + `"}`,
		"deep.json":               deep,
		"snapshot.pickle":         "\x80\x04cos\nsystem\n(S'id'\ntR.",
		"zeros.pickle":            strings.Repeat("\x00", 1<<20),
		"config.json":             `{"hidden_size": 1e308, "num_hidden_layers": -1}`,
		"trace.json.gz":           "\x1f\x8b\x08\x00garbage",
		"million.txt":             "weir plan 1\nranks 1000000000000\n",
		strings.Repeat("é", 120):  "0F0,0B0,x",
		"dumps.tar.gz":            "\x1f\x8b\x08\x00",
		"place.csv":               "id,lower,upper,size\na,0,9223372036854775807,9223372036854775807\nb,0,9223372036854775807,9223372036854775807\n",
		"many columns in one.csv": strings.Repeat(",", 1<<20),
	} {
		t.Run(name[:min(len(name), 20)], func(t *testing.T) {
			w.t = t
			path := testkit.File(t, name, content)
			w.drop(path)
			require.Regexp(t, `^Done in .*exit status [12]`, w.text("#read-status"), w.text("#output"))
			require.NotEmpty(t, w.text("#output"))
			require.NotContains(t, w.text("#output"), "goroutine")
			require.Equal(t, 1, run[int](w, "document.querySelectorAll('img').length"), "the picture of the schedule alone")
		})
	}
}

// A link can contain up to 8 KiB of inputs. A link whose inputs are larger when unpacked is refused.
func TestLinks(t *testing.T) {
	w := open(t, "")
	run[bool](w, `(() => { const form = document.forms.draw; form.schedule.value = "gpipe"; form.ranks.value = 3; return form.ranks.dispatchEvent(new Event("input", {bubbles: true})) })()`)
	w.drawn("gpipe: 3 ranks")
	w.do(chromedp.Click("#draw-link"))
	w.wait("location.hash.length > 1")
	open(t, run[string](w, "location.hash")).drawn("gpipe: 3 ranks")

	w.drop("../../docs/memory-log/kept-loss.jsonl")
	printed := w.text("#output")
	run[bool](w, "location.hash = '', true")
	w.do(chromedp.Click("#read-link"))
	w.wait("location.hash.length > 1")
	other := open(t, run[string](w, "location.hash"))
	other.ended()
	require.Equal(t, printed, other.text("#output"))

	w.drop("../../docs/snapshots/kept-loss.pickle")
	run[bool](w, "location.hash = '', true")
	w.do(chromedp.Click("#read-link"))
	w.wait(`document.getElementById("read-status").textContent.includes("do not fit into a link")`)
	require.Empty(t, run[string](w, "location.hash"))

	var bomb bytes.Buffer
	deflated, err := flate.NewWriter(&bomb, flate.BestCompression)
	require.NoError(t, err)
	_, err = deflated.Write(make([]byte, 64<<20))
	require.NoError(t, err)
	require.NoError(t, deflated.Close())
	for _, fragment := range []string{base64.RawURLEncoding.EncodeToString(bomb.Bytes()), "%%%", "AAAA"} {
		bad := open(t, "#"+fragment)
		bad.wait(`document.getElementById("read-status").textContent.includes("The link cannot be read")`)
		bad.drawn("1f1b") // the page works
	}
}

// Stop ends a long command, and the next one runs.
func TestStop(t *testing.T) {
	w := open(t, "")
	w.do(chromedp.SetValue("#command", "choose --ranks 64 --microbatches 256"), chromedp.Click("#read button"))
	w.wait(`!document.getElementById("stop").disabled`)
	w.do(chromedp.Click("#stop"))
	w.wait(`document.getElementById("read-status").textContent.startsWith("Stopped")`)
	w.do(chromedp.SetValue("#command", "plan 1f1b --ranks 2 --to compute -o a.csv; check a.csv"), chromedp.Click("#read button"))
	w.ended()
	require.Contains(t, w.text("#output"), "ok:", "the second command reads the file of the first")
}

// The proxy detects a request to another host.
func TestOutside(t *testing.T) {
	ctx, end := chromedp.NewContext(browser)
	defer end()
	_ = chromedp.Do(ctx, chromedp.Navigate("http://elsewhere.example/"))
	outside.Lock()
	defer outside.Unlock()
	require.Equal(t, []string{"GET http://elsewhere.example/"}, outside.urls)
	outside.urls = nil
}

// The page fits on a phone, is dark if the reader's system is, and shows many ranks.
func TestAppearance(t *testing.T) {
	dark := chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
		return err
	})
	phone := open(t, "", chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2)))
	phone.drawn("1f1b")
	phone.drop("../../docs/snapshots/kept-loss.pickle")
	require.Equal(t, 360, run[int](phone, "document.documentElement.scrollWidth"), "nothing is wider than the screen")
	phone.picture("phone")

	night := open(t, "", dark)
	night.drawn("1f1b")
	require.Equal(t, "rgb(20, 23, 26)", run[string](night, "getComputedStyle(document.body).backgroundColor"))
	night.drop("../../cmd/weir/testdata/1f1b.csv")
	night.picture("dark")

	wide := open(t, "")
	run[bool](wide, `(() => { const form = document.forms.draw; form.ranks.value = 64; form.microbatches.value = 128; return form.ranks.dispatchEvent(new Event("input", {bubbles: true})) })()`)
	wide.drawn("64 ranks")
	wide.picture("ranks")

	long := open(t, "", chromedp.EmulateViewport(360, 740))
	path := filepath.Join(t.TempDir(), strings.Repeat("a-long-name-", 20)+".csv")
	content := []byte(testkit.Read(t, "../../cmd/weir/testdata/1f1b.csv"))
	require.NoError(t, os.WriteFile(path, content, 0o666))
	long.drop(path)
	require.Equal(t, 360, run[int](long, "document.documentElement.scrollWidth"))
	long.picture("long-names")
}

// Every control has a name for screen readers and can be reached with the Tab key.
func TestNames(t *testing.T) {
	w := open(t, "")
	w.drawn("1f1b")
	tree, err := chromedp.Call(w.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(t, err)
	named := map[string]int{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role := strings.Trim(string(node.Role.Value), `"`)
		switch role {
		case "button", "combobox", "slider", "textbox", "link", "image", "progressbar", "figure":
			require.NotNil(t, node.Name, role)
			require.NotEqual(t, `""`, string(node.Name.Value), "%s %s", role, fmt.Sprint(node.BackendDOMNodeID))
			named[role]++
		}
	}
	require.Equal(t, 7, named["slider"])
	require.GreaterOrEqual(t, named["button"], 4)
	reached := map[string]bool{}
	for range 40 {
		w.do(chromedp.KeyEvent(kb.Tab))
		reached[run[string](w, `document.activeElement.name || document.activeElement.id || document.activeElement.textContent.trim()`)] = true
	}
	for _, control := range []string{"schedule", "ranks", "per", "microbatches", "f", "i", "w", "latency", "save", "draw-link", "full", "Each rank", "choose", "command", "Run", "read-link"} {
		require.True(t, reached[control], "the Tab key reaches %s; it has reached %v", control, reached)
	}
}

// A file of 200 MB is read in parts. A larger one is refused before it is read.
func TestLargeFile(t *testing.T) {
	if !*testkit.Long {
		t.Skip("reading 200 MB takes minutes: -long does")
	}
	path := filepath.Join(t.TempDir(), "large.jsonl")
	file, err := os.Create(path)
	require.NoError(t, err)
	line := []byte(`{"step": 0, "rank": 0, "microbatch": 0, "allocated": 110072960, "reserved": 110579712, "peak": 110072960}` + "\n")
	for size := 0; size < 200e6-2*len(line); {
		n, err := file.Write(line)
		require.NoError(t, err)
		size += n
	}
	w := open(t, "")
	w.drop(path)
	require.Regexp(t, `^Done in`, w.text("#read-status"), w.text("#output"))
	t.Log(w.text("#read-status"))
	_, err = file.Write(make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, file.Close())
	w.drop(path)
	require.Contains(t, w.text("#read-status"), "200.00 MB at most")
}
