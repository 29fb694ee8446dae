package main

// memCmd groups the commands about the memory of a plan, and of a run with a log.
type memCmd struct {
	Log    memLogCmd    `cmd:"" default:"withargs" help:"Show a memory log: its ranks, levels, peaks, and growth."`
	Plan   memPlanCmd   `cmd:"" help:"Lay out the memory of a plan before it runs, and print the certificate."`
	Diff   memDiffCmd   `cmd:"" help:"Find the first place where two memory logs differ."`
	Export memExportCmd `cmd:"" help:"Write every allocation of a planned step as a PyTorch snapshot, a Perfetto trace, or CSV."`
	Leaks  memLeaksCmd  `cmd:"" help:"Find the allocations in a PyTorch memory snapshot that grow with microbatches."`
}

// Help returns the text that is printed below the flags.
func (memCmd) Help() string {
	return `weir mem LOG is short for weir mem log LOG.`
}
