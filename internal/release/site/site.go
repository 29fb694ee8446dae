package site

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/schedule"
)

//go:embed page
var page embed.FS

const command = "github.com/weir-ml/weir/cmd/weir"

// Write writes the page to a folder, which it makes if necessary. It builds the command with Go,
// which it runs in the folder source: a clone, or a module that requires Weir.
func Write(ctx context.Context, folder, source string) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	var with struct{ GOROOT, GOVERSION string }
	printed, err := run(ctx, source, "env", "-json", "GOROOT", "GOVERSION")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(printed, &with); err != nil {
		return err
	}
	start, err := os.ReadFile(filepath.Join(with.GOROOT, "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "wasm_exec.js"), start, 0o666); err != nil {
		return err
	}
	if err := build(ctx, folder, source); err != nil {
		return err
	}
	var options strings.Builder
	for _, s := range schedule.Schedules() {
		selected := ""
		if s.Name == "1f1b" {
			selected = " selected"
		}
		fmt.Fprintf(&options, "<option data-stages=%d%s>%s", s.PerRank, selected, s.Name)
	}
	fill := strings.NewReplacer("<!--schedules-->", options.String(), "<!--built-->", with.GOVERSION+", whose wasm_exec.js starts the command")
	files, err := fs.Sub(page, "page")
	if err != nil {
		return err
	}
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(folder, name), []byte(fill.Replace(string(text))), 0o666)
	})
}

// build writes weir.wasm.gz. The page decompresses it, so the command is small on the wire
// whether the server compresses or not.
func build(ctx context.Context, folder, source string) error {
	scratch, err := os.MkdirTemp("", "weir-site-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	wasm := filepath.Join(scratch, "weir.wasm")
	if _, err := run(ctx, source, "build", "-trimpath", "-ldflags=-s -w", "-o", wasm, command); err != nil {
		return err
	}
	plain, err := os.ReadFile(wasm)
	if err != nil {
		return err
	}
	var small bytes.Buffer
	w, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(plain); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "weir.wasm.gz"), small.Bytes(), 0o666)
}

// run runs go in the folder source and returns its output.
func run(ctx context.Context, source string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = source, &stderr
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0")
	printed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("the page is built by Go, in a clone or in a module that requires Weir: go %s: %w\n%s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return printed, nil
}
