package main

import (
	"bytes"
	"context"
	"errors"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/trainer/units"
)

// defaultText reads Newton's Opticks, which a Go installation has among its test
// data, or where it is not there the standard library's own source.
func defaultText(ctx context.Context) (*text, error) {
	root := goroot(ctx)
	opticks := filepath.Join(root, "src", "testdata", "Isaac.Newton-Opticks.txt")
	t := &text{name: "Newton's Opticks (" + opticks + ")"}
	if err := t.readFile(opticks, mostText, nil); err == nil && len(t.bytes) > 0 {
		return t, nil
	}
	source := filepath.Join(root, "src")
	t = &text{name: "the first " + units.Size(mostSource) + " of Go source in " + source}
	err := t.readFolder(ctx, source, mostSource, isGo)
	if errors.Is(err, errInterrupted) {
		return nil, err
	}
	if err != nil || len(t.bytes) == 0 {
		return nil, errors.New("no text was found in the Go installation: name a file or a folder with -data")
	}
	return t, nil
}

// goroot returns the root of the Go installation, empty where there is none.
func goroot(ctx context.Context) string {
	if root := build.Default.GOROOT; root != "" {
		if _, err := os.Stat(filepath.Join(root, "src")); err == nil {
			return root
		}
	}
	// A program built with -trimpath does not know.
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(out))
}

// isGo reports whether a file is Go source of the standard library itself.
func isGo(path string, head []byte) bool {
	for _, folder := range [...]string{"cmd", "vendor", "testdata"} {
		if strings.Contains(path, string(filepath.Separator)+folder+string(filepath.Separator)) {
			return false
		}
	}
	return filepath.Ext(path) == ".go" && isText(path, head)
}
