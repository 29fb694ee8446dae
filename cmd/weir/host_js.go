package main

// hostCommands is empty in a browser.
type hostCommands struct{}
