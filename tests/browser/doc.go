// Package browser tests the page of package site in headless Chromium. It is a separate module,
// so that no program that imports Weir depends on a browser's protocol.
package browser
