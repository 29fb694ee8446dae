package stagetest_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/weir-ml/weir/stages/stagetest"
)

func whole(broken string) []stagetest.Fault { return stagetest.Check(config(broken, false)) }

func split(broken string) []stagetest.Fault { return stagetest.Check(config(broken, true)) }

func pointers(broken string) []stagetest.Fault { return stagetest.Check(pointerConfig(broken)) }

// mutants has a broken stage for every code that a stage can cause.
var mutants = []struct {
	broken string
	check  func(broken string) []stagetest.Fault
	want   stagetest.Code
}{
	{"bad spec", whole, stagetest.BadSpec},
	{"frozen but for its parameters", whole, stagetest.BadSpec},
	{"spec changes", whole, stagetest.SpecChanges},
	{"params change", whole, stagetest.SpecChanges},
	{"fails", whole, stagetest.Fails},
	{"panics", whole, stagetest.Panics},
	{"undeclared read", whole, stagetest.Undeclared},
	{"saves undeclared", whole, stagetest.Undeclared},
	{"reads late", whole, stagetest.ReadsLate},
	{"saves without a consumer", whole, stagetest.Misplaced},
	{"contributes in forward", whole, stagetest.Misplaced},
	{"takes in forward", whole, stagetest.Misplaced},
	{"records late", whole, stagetest.Misplaced},
	{"saves twice", whole, stagetest.SavesTwice},
	{"takes unsaved", whole, stagetest.TakesUnsaved},
	{"takes twice", whole, stagetest.TakesTwice},
	{"keeps view", whole, stagetest.KeepsView},
	{"returns ended", whole, stagetest.UsesEnded},
	{"unfilled output", whole, stagetest.UnfilledOutput},
	{"gradIn missing", whole, stagetest.GradInMissing},
	{"gradIn of NoGrad", whole, stagetest.GradInUnwanted},
	{"gradIn unwanted", whole, stagetest.GradInUnwanted},
	{"returns borrowed", whole, stagetest.ReturnsBorrowed},
	{"returns borrowed gradient", whole, stagetest.ReturnsBorrowed},
	{"saves borrowed", whole, stagetest.SavesBorrowed},
	{"ignores refused save", whole, stagetest.SavesBorrowed},
	{"releases input", whole, stagetest.ReleasesBorrowed},
	{"releases input on its own", whole, stagetest.ReleasesBorrowed},
	{"releases taken", whole, stagetest.ReleasesBorrowed},
	{"keeps input", whole, stagetest.KeepsInput},
	{"keeps output", whole, stagetest.KeepsOutput},
	{"keeps gradOut", whole, stagetest.KeepsGradient},
	{"keeps gradIn", whole, stagetest.KeepsGradient},
	{"keeps part", whole, stagetest.KeepsPart},
	{"keeps saved", whole, stagetest.KeepsSaved},
	{"keeps taken", whole, stagetest.KeepsSaved},
	{"unreleased workspace", whole, stagetest.Unreleased},
	{"unreleased in Eval", whole, stagetest.Unreleased},
	{"mutates input", whole, stagetest.MutatesInput},
	{"mutates gradOut", whole, stagetest.MutatesGradOut},
	{"mutates part", whole, stagetest.MutatesPart},
	{"contributes twice", whole, stagetest.ContributesTwice},
	{"contributes never", whole, stagetest.ContributesNever},
	{"not repeatable", whole, stagetest.NotRepeatable},
	{"state in fields", whole, stagetest.OrderMatters},
	{"draws by a counter", whole, stagetest.OrderMatters},
	{"ignores First", whole, stagetest.IgnoresFirst},
	{"ignores First by a factor", whole, stagetest.IgnoresFirst},
	{"ignores Add", whole, stagetest.IgnoresAdd},
	{"draws again in a recompute", whole, stagetest.RecomputeDiffers},
	{"depends on the pass in Eval", whole, stagetest.EvalDiffers},
	{"ignores frozen", whole, stagetest.FrozenDiffers},
	{"writes frozen", whole, stagetest.WritesFrozen},
	{"split differs", split, stagetest.SplitDiffers},
	{"split takes again", split, stagetest.SplitDiffers},
	{"I keeps in a field", split, stagetest.SplitDiffers},
	{"I keeps gradOut", split, stagetest.SplitDiffers},
	{"I has an unwanted gradIn", split, stagetest.GradInUnwanted},
	{"cancelled between I and W", split, stagetest.AbortMatters},
	{"W allocates", split, stagetest.Allocates},
	{"cancelled in between", whole, stagetest.AbortMatters},
	{"allocates", whole, stagetest.Allocates},
	{"keeps input", pointers, stagetest.KeepsSaved},
	{"reachable part", pointers, stagetest.Reachable},
	{"reachable closure", pointers, stagetest.Reachable},
	{"never asks for a seed", heads, stagetest.LacksSeed},
	{"asks for the seed of a metric", heads, stagetest.Undeclared},
	{"forgets the seed", heads, stagetest.GradientDiffers},
	{"misses the coefficient", heads, stagetest.GradientDiffers},
	{"doubles a term", heads, stagetest.GradientDiffers},
	{"forgets the weight", heads, stagetest.GradientDiffers},
	{"gradient by 1.01", heads, stagetest.GradientDiffers},
	{"gradIn by 1.01", heads, stagetest.GradientDiffers},
	{"makes nothing", whole, stagetest.BadConfig},
}

func TestMutantsAreCaught(t *testing.T) {
	caught := map[string]bool{}
	for _, m := range mutants {
		t.Run(m.broken, func(t *testing.T) {
			faults := m.check(m.broken)
			if len(faults) != 1 || faults[0].Code != m.want {
				t.Errorf("not caught as %q alone, but as %v", m.want, faults)
			}
			for _, fault := range faults {
				t.Log(fault)
			}
			caught[m.want.String()] = true
		})
	}
	source, err := os.ReadFile("fault.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range regexp.MustCompile(`= Code\{"([^"]+)"`).FindAllSubmatch(source, -1) {
		if !caught[string(code[1])] {
			t.Errorf("no mutant for %q", code[1])
		}
		delete(caught, string(code[1]))
	}
	if len(caught) > 0 {
		t.Errorf("fault.go has no codes %v", caught)
	}
}
