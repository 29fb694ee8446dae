package main

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// browser loads the live page whenever the program reports a step.
type browser struct {
	t     *testing.T
	out   bytes.Buffer
	url   string
	pages []string
}

func (b *browser) Write(p []byte) (int, error) {
	b.out.Write(p)
	if found := regexp.MustCompile(`live +(http://\S+)`).FindStringSubmatch(string(p)); found != nil {
		b.url = found[1]
	}
	if b.url != "" && regexp.MustCompile(`^step +\d+/`).Match(p) {
		response, err := http.Get(b.url)
		require.NoError(b.t, err)
		page, err := io.ReadAll(response.Body)
		require.NoError(b.t, err)
		require.NoError(b.t, response.Body.Close())
		b.pages = append(b.pages, string(page))
	}
	return len(p), nil
}

func TestARunIsWatched(t *testing.T) {
	events := filepath.Join(t.TempDir(), "events")
	b := &browser{t: t}
	var stderr bytes.Buffer
	status := run(t.Context(), []string{"-data", sentence(t), "-steps", "6", "-microbatches", "4", "-ranks", "2", "-plan", "1f1b",
		"-run", filepath.Join(t.TempDir(), "run"), "-serve", ":0", "-tensorboard", events}, b, &stderr)
	require.Zero(t, status, stderr.String())
	require.Len(t, b.pages, 6, b.out.String())
	require.Contains(t, b.pages[0], "not done yet")
	last := b.pages[5]
	for _, want := range []string{"<title>Step 5 of 6</title>", "growth per microbatch", "The last actions by the clock", "rank 1", `class="span"`} {
		require.Contains(t, last, want)
	}
	_, err := http.Get(b.url)
	require.Error(t, err, "it ends with the run")
	files, err := filepath.Glob(filepath.Join(events, "events.out.tfevents.*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	data := []byte(read(t, files[0]))
	require.Equal(t, 6, bytes.Count(data, []byte("loss/train")))

	status = run(t.Context(), []string{"-data", sentence(t), "-run", filepath.Join(t.TempDir(), "run"), "-serve", "nowhere.invalid:80"}, io.Discard, &stderr)
	require.Equal(t, 1, status)
	require.Contains(t, stderr.String(), "train: -serve: ")
}
