package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/weir-ml/weir/trainer/corpus"
	"github.com/weir-ml/weir/trainer/units"
)

// Most bytes of text that are read: all of it is held in memory.
const (
	mostText   = 64 << 20
	mostSource = 4 << 20 // of the standard library, where it stands in for a text
)

// readText reads a file or a folder, or where path is empty Newton's Opticks, which a Go
// installation has among its test data, or where that is not there the standard library's
// own source.
func readText(ctx context.Context, path string) (*corpus.Text, error) {
	if path != "" {
		text, err := corpus.Read(ctx, path, mostText, nil)
		return text, dataError(err)
	}
	root := goroot(ctx)
	opticks := filepath.Join(root, "src", "testdata", "Isaac.Newton-Opticks.txt")
	if text, err := corpus.Read(ctx, opticks, mostText, nil); err == nil {
		text.Name = "Newton's Opticks (" + opticks + ")"
		return text, nil
	}
	source := filepath.Join(root, "src")
	text, err := corpus.Read(ctx, source, mostSource, isGo)
	if err != nil {
		return nil, errors.New("no text was found in the Go installation: name a file or a folder with -data")
	}
	text.Name = "the first " + units.Size(mostSource) + " of Go source in " + source
	return text, nil
}

func dataError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("-data: %w", err)
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
	return filepath.Ext(path) == ".go" && corpus.LooksLikeText(path, head)
}
