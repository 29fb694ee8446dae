package layout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

func TestScratch(t *testing.T) {
	for _, m := range []int{8, 128} {
		for _, s := range schedule.Schedules() {
			ranks := 4
			if s.Name == "dualpipe" { ranks = 4 }
			plan := planned(t, s.Name, ranks, m, schedule.Training)
			began := time.Now()
			made, err := layout.Make(context.Background(), plan, model(plan.Placement.Depth(), 2, 48, 32), layout.Config{Search: placement.Options{Time: 100e6}})
			require.NoError(t, err, s.Name)
			for r, rank := range made.Ranks {
				fmt.Printf("%-20s M=%d rank %d: height %d bound %d gap %.4f%% opt %v buffers %d births %d %s; %v\n", s.Name, m, r, rank.Height, rank.Bound, 100*rank.Gap(), rank.Optimal, rank.Buffers, len(rank.Layout.Births), rank.Method, rank.Segments[len(rank.Segments)/2])
			}
			fmt.Println(time.Since(began))
		}
	}
}

var _ = json.Marshal
var _ = os.Open
