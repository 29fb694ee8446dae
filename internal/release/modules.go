package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// nested returns the folders of the nested modules to publish. Modules under tests/ are not published.
func nested(source string) (folders []string, err error) {
	printed, err := command(source, nil, "git", "ls-files", "*/go.mod")
	for name := range strings.FieldsSeq(printed) {
		if !strings.HasPrefix(name, "tests/") {
			folders = append(folders, path.Dir(name))
		}
	}
	return folders, err
}

// prepare makes the nested modules require a version of the main one. Their replace directives stay, because
// they have an effect only within this repository.
func prepare(source, version string) error {
	folders, err := nested(source)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if _, err := command(filepath.Join(source, folder), nil, "go", "mod", "edit", "-require="+mainModule+"@"+version); err != nil {
			return err
		}
	}
	return nil
}

// proxy writes the modules in the form that GOPROXY=file://OUTPUT/proxy reads. Each nested module must require
// the version and have its own tag on the same commit, because the go command looks for this tag in a
// repository.
func (r *release) proxy() error {
	folders, err := nested(r.source)
	if err != nil {
		return err
	}
	for _, folder := range append([]string{""}, folders...) {
		content, err := os.ReadFile(filepath.Join(r.source, folder, "go.mod"))
		if err != nil {
			return err
		}
		if folder != "" {
			if err := r.checkNested(folder, content); err != nil {
				return err
			}
		}
		if err := r.publish(folder, content); err != nil {
			return err
		}
	}
	return nil
}

// checkNested checks that a nested module requires the version, and that its tag has the version's files.
func (r *release) checkNested(folder string, content []byte) error {
	parsed, err := modfile.ParseLax("go.mod", content, nil)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(parsed.Require, func(required *modfile.Require) bool {
		return required.Mod == module.Version{Path: mainModule, Version: r.version}
	}) {
		return fmt.Errorf("%s/go.mod does not require %s %s: run -prepare %[3]s, commit, and tag again", folder, mainModule, r.version)
	}
	tag := folder + "/" + r.version
	if _, err := command(r.source, nil, "git", "diff", "--quiet", tag, r.version); err != nil {
		return fmt.Errorf("the nested module needs the tag %s on the commit of %s: git tag %s %s^{}: %w", tag, r.version, tag, r.version, err)
	}
	return nil
}

// publish writes the files of a module.
func (r *release) publish(folder string, content []byte) error {
	at := module.Version{Path: path.Join(mainModule, folder), Version: r.version}
	escaped, err := module.EscapePath(at.Path)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := zip.CreateFromVCS(&packed, at, r.source, r.version, folder); err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": r.version, "Time": r.made.Format(time.RFC3339)})
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{"list": []byte(r.version + "\n"), r.version + ".info": info, r.version + ".mod": content, r.version + ".zip": packed.Bytes()} {
		if err := r.write("proxy/"+escaped+"/@v/"+name, content); err != nil {
			return err
		}
	}
	return nil
}
