//go:build !js

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/weir-ml/weir/internal/release/site"
	"github.com/weir-ml/weir/trainer/launch"
	"github.com/weir-ml/weir/trainer/live"
)

// serveCmd serves the page that runs weir in a browser.
type serveCmd struct {
	Addr   string `help:"Address to listen on. The default is for this host alone." placeholder:"HOST:PORT" default:"127.0.0.1:8080" unless:"output"`
	Output string `help:"Write the files of the page to this folder, for any web server, and serve nothing." short:"o" placeholder:"FOLDER"`
}

// Help returns the text that is printed below the flags.
func (serveCmd) Help() string {
	return `The page draws schedules and reads files with this command, built for WebAssembly. Nothing is uploaded: the files that a visitor chooses stay in the browser. Building takes Go and a clone of Weir, or a module that requires it.`
}

// Run serves until an interrupt or SIGTERM, or only writes the files of the page if --output is set.
func (c *serveCmd) Run(s *streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(s.text, "building this command for browsers; that takes a minute at first, and seconds later")
	if c.Output != "" {
		return site.Write(ctx, c.Output, "")
	}
	listener, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	folder, remove, err := launch.Folder()
	if err != nil {
		return err
	}
	defer remove()
	page := filepath.Join(folder, "page")
	if err := site.Write(ctx, page, ""); err != nil {
		return err
	}
	fmt.Fprintf(s.text, "http://%s (end with Ctrl-C)\n", listener.Addr())
	return live.Serve(ctx, listener, http.FileServer(http.Dir(page)))
}
