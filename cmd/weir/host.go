//go:build !js

package main

// hostCommands are the commands that need processes and sockets, which a browser does not have.
type hostCommands struct {
	Launch launchCmd `cmd:"" group:"Jobs:" help:"Start the processes of a job, and end them together."`
	Status statusCmd `cmd:"" group:"Jobs:" help:"Show the action of each rank of the running jobs, and the rank that it waits for."`
	Serve  serveCmd  `cmd:"" group:"This command:" help:"Serve the page that runs weir in a browser."`
}
