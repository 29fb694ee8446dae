package main

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// extras holds the files that every package contains in addition to the program.
type extras struct {
	license, readme []byte
	notices         []byte // the licenses of the modules that the program contains
	manual          []byte
	completions     map[string][]byte // a script by shell
}

// extras gets the manual page and the scripts from the program, which must be able to run on this system.
func (r *release) extras(binary string) (*extras, error) {
	license, err1 := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	readme, err2 := os.ReadFile(filepath.Join(r.source, "README.md"))
	notices, err3 := r.notices()
	manual, err4 := command("", nil, binary, "help", "--man")
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	e := &extras{license: license, readme: readme, notices: notices, manual: []byte(manual), completions: map[string][]byte{}}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := command("", nil, binary, "completion", shell)
		if err != nil {
			return nil, err
		}
		e.completions[shell] = []byte(strings.ReplaceAll(script, binary, "weir"))
	}
	return e, nil
}

// files returns the extras as the files of an archive.
func (e *extras) files() []file {
	return []file{
		{"LICENSE", 0o644, e.license}, {"NOTICES", 0o644, e.notices}, {"README.md", 0o644, e.readme}, {"weir.1", 0o644, e.manual},
		{"completions/", 0o755, nil}, {"completions/weir.bash", 0o644, e.completions["bash"]},
		{"completions/_weir", 0o644, e.completions["zsh"]}, {"completions/weir.fish", 0o644, e.completions["fish"]},
	}
}

// notices returns the licenses of Go and of the modules of the command.
func (r *release) notices() ([]byte, error) {
	printed, err := command(r.source, nil, "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}", "./cmd/weir")
	if err != nil {
		return nil, err
	}
	root, err := command(r.source, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	seen := map[string]bool{"": true}
	for line := range strings.Lines("Go\t" + root + printed) {
		name, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if seen[name] || strings.HasPrefix(name, mainModule) {
			continue
		}
		seen[name] = true
		found, err := filepath.Glob(filepath.Join(folder, "[LCN][IO][CPT][EYI]*")) // LICENSE, COPYING and NOTICE
		if err != nil || len(found) == 0 {
			return nil, cmp.Or(err, fmt.Errorf("%s has no license in %s", name, folder))
		}
		for _, license := range found {
			content, err := os.ReadFile(license)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&text, "%s\n\n%s\n\n", name, bytes.TrimSpace(content))
		}
	}
	return text.Bytes(), nil
}

//go:embed recipes
var recipes embed.FS

// recipes writes a formula for Homebrew and a recipe for containers. Both take the archives of the release.
func (r *release) recipes() error {
	sums := map[string]string{} // of archives, by platform
	for _, line := range r.sums {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[strings.TrimSuffix(strings.TrimPrefix(name, "weir_"+r.number()+"_"), ".tar.gz")] = sum
	}
	for _, name := range []string{"weir.rb", "Dockerfile"} {
		var text bytes.Buffer
		fill := map[string]any{"Module": mainModule, "Number": r.number(), "Sums": sums}
		if err := template.Must(template.ParseFS(recipes, "recipes/"+name)).Execute(&text, fill); err != nil {
			return err
		}
		if err := r.write(name, text.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
