package testkit

import "flag"

var (
	// Update is -update: a test writes its golden files anew, and compares nothing.
	Update = flag.Bool("update", false, "rewrite the golden files")
	// Long is -long: the sweeps that .ci/long runs are wanted too.
	Long = flag.Bool("long", false, "run the long sweeps too")
)
