package schedule_test
import ("testing";"fmt";"os";"bufio";"strings";"github.com/weir-ml/weir/schedule")
func TestDumpX(t *testing.T) {
	f, _ := os.Create("/tmp/h/L/dump.txt"); defer f.Close()
	w := bufio.NewWriter(f); defer w.Flush()
	show := func(list []schedule.Action) string {
		var out []string
		for i := 0; i < len(list); i++ {
			if list[i].Joined() { out = append(out, fmt.Sprintf("(%v;%v)", list[i], list[i+1])); i++ } else { out = append(out, list[i].String()) }
		}
		return strings.Join(out, " ")
	}
	for _, s := range schedule.Schedules() {
		if s.Name == "dualpipe" { continue }
		for _, ranks := range []int{1,2,3,4,5} { for _, v := range []int{1,2,3,4,5} { for _, m := range []int{1,2,3,5,8,11} {
			pl, err := s.Place(ranks, ranks*v)
			if err != nil { continue }
			p, err := s.Rule(schedule.Params{Placement: pl, Microbatches: m})
			if err != nil { continue }
			for _, o := range []schedule.PyTorch{{}, {Active: 3}, {Active: 2}, {Active: 3, Reduce: true}, {Merge: true, Active: 3, Reduce: true}, {Active: 3, Reduce: true, Defer: true}} {
				l, err := schedule.LowerPyTorch(p, o)
				if err != nil { t.Fatal(err) }
				fmt.Fprintln(w, "PLAN", s.Name, ranks, v, m, o.Merge, o.Active, o.Reduce, o.Defer, "|", fmt.Sprint(pl.Rank))
				for r := range p.Programs { fmt.Fprintln(w, show(lists(p)[r])); fmt.Fprintln(w, show(lists(l)[r])) }
			}
		}}}
	}
}
