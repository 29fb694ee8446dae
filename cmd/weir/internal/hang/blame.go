package hang

import (
	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
	"github.com/weir-ml/weir/transport/diagnosis"
)

// Wait says that one rank waits for another.
type Wait struct {
	Rank    int    `json:"rank"`
	For     int    `json:"for"`
	In      string `json:"in"` // the operation in which the rank waits, such as "recv from rank 3"
	Group   string `json:"group,omitempty"`
	Certain bool   `json:"certain"`
	kind    flightrec.OpKind
}

// graph returns the graph of waits. It includes the given ranks even if no rank waits for them.
func graph(waits []Wait, ranks ...int) diagnosis.Graph {
	g := diagnosis.Graph{}
	for _, rank := range ranks {
		g[rank] = nil
	}
	for _, w := range waits {
		g.Add(w.Rank, w.For)
	}
	return g
}
