package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/release/site"
)

var (
	pictures = flag.String("pictures", "", "write screenshots to this folder")
	chromium = flag.String("chromium", "chromium", "the browser")
)

const patience = 3 * time.Minute // timeout for one result, on a busy machine

var (
	served  string          // URL of the page
	browser context.Context // each test opens a separate tab
	native  string          // the command, built for this machine
	outside struct {        // requests to other hosts
		sync.Mutex
		urls []string
	}
)

func TestMain(m *testing.M) {
	flag.Parse()
	if _, err := exec.LookPath(*chromium); err != nil {
		fmt.Println("skipped, the page is not tested in a browser here:", err)
		return
	}
	os.Exit(within(m))
}

// within runs the tests with a server for the page, the command, and a browser. All requests of the browser
// to other hosts, including those of workers, go to a proxy that records and refuses them. The proxy does
// not record requests to the hosts that Chromium itself asks for updates; a tab records its page's requests
// to these.
func within(m *testing.M) int {
	folder, err := os.MkdirTemp("", "weir-browser-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	if err := site.Write(context.Background(), filepath.Join(folder, "site"), "../.."); err != nil {
		panic(err)
	}
	native = filepath.Join(folder, "weir")
	build := exec.Command("go", "build", "-o", native, "./cmd/weir")
	build.Dir, build.Stderr = "../..", os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(folder, "site"))))
	defer server.Close()
	served = server.URL
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := r.URL.Hostname(); !strings.HasSuffix(host, ".google.com") && !strings.HasSuffix(host, ".googleapis.com") {
			outside.Lock()
			outside.urls = append(outside.urls, r.Method+" "+r.RequestURI)
			outside.Unlock()
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()

	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(*chromium), chromedp.NoSandbox,
		chromedp.ProxyServer(proxy.URL), chromedp.Flag("disable-component-update", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	browser, end = chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(browser); err != nil {
		panic(err)
	}
	return m.Run()
}

// tab is a browser tab with the page.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// open opens the page. Errors in its console, and requests to other hosts, fail the test when
// it ends.
func open(t *testing.T, fragment string, prepare ...chromedp.Action[chromedp.Void]) tab {
	ctx, end := chromedp.NewContext(browser)
	var mutex sync.Mutex
	var wrong []string
	note := func(text string) {
		mutex.Lock()
		defer mutex.Unlock()
		wrong = append(wrong, text)
	}
	require.NoError(t, chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
		return err
	})))
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			note(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *runtime.EventConsoleAPICalled:
			if e.Type != runtime.ConsoleAPICalledTypeLog {
				note(fmt.Sprintf("console: %s", e.Args[0].Value))
			}
		case *network.EventRequestWillBeSent:
			if url := e.Request.URL; !strings.HasPrefix(url, served+"/") && !strings.HasPrefix(url, "blob:"+served+"/") && url != "data:," {
				note("request: " + url)
			}
		case *log.EventEntryAdded:
			note(fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	}))
	t.Cleanup(func() {
		end()
		mutex.Lock()
		defer mutex.Unlock()
		require.Empty(t, wrong, "the console")
		outside.Lock()
		defer outside.Unlock()
		require.Empty(t, outside.urls, "requests to other hosts")
	})
	w := tab{t, ctx}
	w.do(append(prepare, chromedp.Navigate(served+"/"+fragment))...)
	return w
}

func (w tab) do(actions ...chromedp.Action[chromedp.Void]) {
	w.t.Helper()
	require.NoError(w.t, chromedp.Do(w.ctx, actions...))
}

// run runs a script and returns its outcome.
func run[T any](w tab, script string, values ...any) T {
	w.t.Helper()
	got, err := chromedp.Run(w.ctx, chromedp.Evaluate[T](fmt.Sprintf(script, values...)))
	require.NoError(w.t, err, script)
	return got
}

// wait waits until a condition holds.
func (w tab) wait(condition string, values ...any) {
	w.t.Helper()
	_, err := chromedp.Run(w.ctx, chromedp.Poll[bool](fmt.Sprintf(condition, values...), chromedp.WithPollingTimeout(patience), chromedp.WithPollingInterval(20*time.Millisecond)))
	require.NoError(w.t, err, "%s; the page says: %s", condition, w.text("main"))
}

// text returns the text of an element.
func (w tab) text(selector string) string {
	w.t.Helper()
	return run[string](w, "document.querySelector(%q).textContent", selector)
}

// drawn waits for the picture of a step with these words in its description.
func (w tab) drawn(words string) {
	w.t.Helper()
	w.wait("!picture.hidden && !picture.classList.contains('old') && picture.naturalWidth > 0 && picture.alt.includes(%q)", words)
}

// drop drops files on the page and waits for the end of the command that it chooses.
func (w tab) drop(paths ...string) {
	w.t.Helper()
	for i, path := range paths {
		full, err := filepath.Abs(path)
		require.NoError(w.t, err)
		paths[i] = full
	}
	run[bool](w, `!!document.body.appendChild(Object.assign(document.createElement("input"), {type: "file", multiple: true, id: "dropped"}))`)
	w.do(chromedp.SetUploadFiles("#dropped", paths))
	run[bool](w, `(() => {
		const carried = new DataTransfer(), from = document.getElementById("dropped");
		for (const file of from.files) carried.items.add(file);
		from.remove();
		document.getElementById("read-status").textContent = "";
		return dispatchEvent(new DragEvent("drop", {dataTransfer: carried, cancelable: true})) || true;
	})()`)
	w.ended()
}

// ended waits until the command has ended.
func (w tab) ended() {
	w.t.Helper()
	w.wait(`/^(Done|Stopped|The )/.test(document.getElementById("read-status").textContent)`)
}

// picture writes a screenshot of the whole page if the tests run with -pictures.
func (w tab) picture(name string) {
	w.t.Helper()
	if *pictures == "" {
		return
	}
	picture, err := chromedp.Run(w.ctx, chromedp.FullScreenshot(100))
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(*pictures, name+".png"), picture, 0o666))
}

// command runs the command natively in a folder and returns what it prints. Several commands
// are separated by semicolons, as in the page.
func command(t *testing.T, folder, line string) string {
	t.Helper()
	var printed bytes.Buffer
	for one := range strings.SplitSeq(line, ";") {
		cmd := exec.Command(native, strings.Fields(one)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = folder, &printed, &printed
		if cmd.Run() != nil {
			break
		}
	}
	return printed.String()
}
