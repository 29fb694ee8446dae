//go:build !(linux || darwin || freebsd || windows)

package memory

// Populate writes to every page.
func (System) Populate(mem []byte) error {
	touch(mem)
	return nil
}

// Discard fills the range with zeros but keeps the pages.
func (System) Discard(mem []byte) error {
	clear(mem)
	return nil
}
