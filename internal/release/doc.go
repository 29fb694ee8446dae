// Release makes the packages of a tagged version: archives, Debian packages, wheels for Python, a formula
// for Homebrew and a recipe for containers that take the archives, the page for browsers, a folder that
// serves the modules to the go command, and checksums.
//
//	go run ./internal/release -prepare v0.1.0      # nested modules require the version
//	git commit -am "v0.1.0" && git tag v0.1.0      # and a tag for each nested module
//	go run ./internal/release -output dist v0.1.0
//
// Everything is made from a clean clone of the tag. Two runs with one version of Go write the
// same bytes: paths are trimmed, and all times are the commit's.
package main
