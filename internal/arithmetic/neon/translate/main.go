// Translate writes the NEON translation of the given files of AVX2 assembly into the same
// directory: x_arm64.s for x_avx2_amd64.s or x_amd64.s. For the sweep of package gemm,
// sweep256_amd64.s, which uses masks at the end, it writes separately generated code.
package main

import (
	"log"
	"os"
	"strings"

	"github.com/weir-ml/weir/internal/arithmetic/neon"
)

func main() {
	log.SetFlags(0)
	for _, name := range os.Args[1:] {
		source, err := os.ReadFile(name)
		if err != nil {
			log.Fatal("translate: ", err)
		}
		text := ""
		if name == "sweep256_amd64.s" {
			text, err = neon.Sweep()
		} else {
			text, err = neon.Translate(name, string(source))
		}
		if err != nil {
			log.Fatalf("translate: %s: %v", name, err)
		}
		to := strings.Replace(strings.Replace(name, "_avx2_", "_", 1), "_amd64.s", "_arm64.s", 1)
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			log.Fatal("translate: ", err)
		}
	}
}
