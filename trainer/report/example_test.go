package report_test

import (
	"bytes"
	"fmt"
	"log"
	"math"

	"github.com/weir-ml/weir/schedule/units"
	"github.com/weir-ml/weir/trainer/report"
)

// The page of a run of a million steps has as many points as the page of a few hundred.
func Example() {
	losses := report.NewEnvelope(240)
	for step := range 1_000_000 {
		losses.Add(float64(step), 1+4*math.Exp(-float64(step)/2e5))
	}
	page := report.Page{
		Title: "A run",
		Facts: []report.Fact{{Label: "steps", Value: units.Count(1_000_000)}},
		Figures: []report.Figure{{
			Title: "Loss", X: report.Axis{Label: "step", Unit: report.Count}, Y: report.Axis{Label: "nats"},
			Series: []report.Series{{Name: "train", Mark: report.Line, Color: report.Blue, Buckets: losses.Buckets()}},
		}},
	}
	var html bytes.Buffer
	if err := page.Write(&html); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(losses.Buckets()), "points of", losses.Stride(), "steps each;", bytes.Count(html.Bytes(), []byte("<svg")), "drawings: one for a narrow screen")
	// Output:
	// 123 points of 8192 steps each; 2 drawings: one for a narrow screen
}
