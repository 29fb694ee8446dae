package main

import "os"

// apart is an error where an output is the input, or two outputs are one file.
func apart(input string, outputs map[string]string) error {
	there, _ := os.Stat(input)
	flags := map[string]string{} // by the name of the output
	for flag, name := range outputs {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && os.SameFile(there, info) {
			return usage("%s %s is what is read: name another file", flag, name)
		}
		if other, is := flags[name]; is {
			return usage("%s and %s name one file: %s", min(flag, other), max(flag, other), name)
		}
		flags[name] = flag
	}
	return nil
}
