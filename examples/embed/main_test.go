package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func Example() {
	main()
	// Output:
	// step 0  loss 18.0055  weight 2.401  growth per microbatch 0 bytes
	// step 1  loss  0.7185  weight 2.880  growth per microbatch 0 bytes
	// step 2  loss  0.0287  weight 2.976  growth per microbatch 0 bytes
	// step 3  loss  0.0011  weight 2.995  growth per microbatch 0 bytes
	// step 4  loss  0.0000  weight 2.999  growth per microbatch 0 bytes
	// step 5  loss  0.0000  weight 3.000  growth per microbatch 0 bytes
}

// TestTheReadmeShowsThisProgram holds the README to it, line by line.
func TestTheReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, body, found := strings.Cut(string(program), "\n)\n\n")
	require.True(t, found)
	main, stage, found := strings.Cut(body, "\n}\n\n")
	require.True(t, found)
	require.Contains(t, string(readme), "```go\n"+main+"\n}\n```")
	require.Contains(t, string(readme), "```go\n"+stage+"```")
}
