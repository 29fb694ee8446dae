package testkit

import "flag"

var (
	// Update is -update: tests rewrite their golden files instead of comparing.
	Update = flag.Bool("update", false, "rewrite the golden files")
	// Long is -long: tests include the sweeps that .ci/long runs.
	Long = flag.Bool("long", false, "run the long sweeps too")
)
