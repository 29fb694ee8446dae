package loss_test

import (
	"fmt"
	"log"

	"github.com/weir-ml/weir/loss"
)

// Three microbatches of 10, 30 and 60 tokens. The mean is over tokens, not over microbatches.
func Example() {
	ledger, err := loss.NewLedger([]loss.Def{
		{Name: "cross-entropy", Reduction: loss.Mean, Objective: true},
		{Name: "longest", Reduction: loss.Max, Metric: true},
		{Name: "accuracy", Metric: true}, // nothing is recorded for it
	})
	if err != nil {
		log.Fatal(err)
	}
	ledger.Reset()
	for mb, c := range []struct{ sum, tokens float64 }{{45, 10}, {105, 30}, {150, 60}} {
		if err := ledger.Record(0, mb, c.sum, c.tokens); err != nil {
			log.Fatal(err)
		}
		if err := ledger.Record(1, mb, c.tokens, 1); err != nil {
			log.Fatal(err)
		}
	}
	var record loss.Record
	_ = ledger.Finish(&record)
	totals, err := ledger.Totals(&record)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range totals.Values {
		if v.Present {
			fmt.Println(v.Name, v.Value)
		} else {
			fmt.Println(v.Name, "absent")
		}
	}
	fmt.Println(totals.Outcome, "divide gradients by", totals.Divisor)
	// Output:
	// cross-entropy 3
	// longest 60
	// accuracy absent
	// stepped divide gradients by 100
}

// Two ranks reduce together. Every rank passes its record to the collective and continues with
// the merge of all records.
func ExampleLedger_Totals() {
	defs := []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}}
	first, _ := loss.NewLedger(defs)
	second, _ := loss.NewLedger(defs)
	_ = first.Record(0, 0, 1e16, 1)
	_ = second.Record(0, 1, 1, 1)
	_ = first.Record(0, 2, -1e16, 1)

	var ours, theirs loss.Record
	_ = first.Finish(&ours)
	_ = second.Finish(&theirs)
	_ = ours.Merge(&theirs)
	totals, err := first.Totals(&ours)
	fmt.Println(totals.Values[0].Sum, totals.Values[0].Weight, err)
	// Output: 1 3 <nil>
}

func ExampleExact() {
	var a loss.Exact
	plain := 0.0
	for _, x := range []float64{1e308, 5e-324, -1e308} {
		a.Add(x)
		plain += x
	}
	fmt.Println(a.Float64(), plain)
	// Output: 5e-324 0
}
