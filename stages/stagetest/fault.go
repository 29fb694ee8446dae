package stagetest

import "fmt"

// Code is the kind of a fault.
type Code uint8

// The codes.
const (
	BadConfig        Code = iota // the configuration of the suite is wrong
	BadSpec                      // the declaration is wrong
	SpecChanges                  // Spec or Params change between calls
	Fails                        // the stage returns an error of its own
	Panics                       // the stage panics
	Undeclared                   // accesses a slot, part, loss or parameter that it did not declare
	ReadsLate                    // reads a part in an action for which it did not declare the read
	Misplaced                    // saves where no call takes, contributes in a forward, ...
	SavesTwice                   // saves in a slot that is in use
	TakesUnsaved                 // takes from a slot in which nothing was saved
	TakesTwice                   // takes a slot again
	KeepsView                    // uses a microbatch view after its call
	UsesEnded                    // uses or passes on a tensor that was released
	UnfilledOutput               // does not fill an output
	GradInMissing                // does not fill the gradient of an input although it is needed
	GradInUnwanted               // needs a gradIn, or fills one, although none is needed
	ReturnsBorrowed              // returns an argument without Retain
	SavesBorrowed                // saves an argument without Retain
	ReleasesBorrowed             // releases an argument, or a tensor that it has taken
	KeepsInput                   // keeps a reference to an input
	KeepsOutput                  // keeps a reference to its output
	KeepsGradient                // keeps a reference to a gradOut or a gradIn
	KeepsPart                    // keeps a reference to an entry part
	KeepsSaved                   // keeps a reference to a saved tensor (L2)
	Unreleased                   // does not release its own tensors
	Reachable                    // keeps a tensor reachable without a reference to it
	MutatesInput                 // changes an input
	MutatesGradOut               // changes the gradient of an output
	MutatesPart                  // changes an entry part
	ContributesTwice             // contributes to a gradient twice in a microbatch
	ContributesNever             // contributes to a gradient in fewer microbatches than declared
	LacksSeed                    // trains a loss without asking for its seed
	NotRepeatable                // gives other numbers when everything is repeated
	OrderMatters                 // gives other numbers, or fails, in another order of microbatches
	IgnoresFirst                 // adds to a gradient that it must overwrite
	IgnoresAdd                   // overwrites a gradient that it must add to
	RecomputeDiffers             // gives other numbers, or fails, under Recompute (L13)
	EvalDiffers                  // gives other numbers in Eval, or Eval changes the numbers of Train
	FrozenDiffers                // fails, or gives another gradIn, if its parameters are frozen
	WritesFrozen                 // writes the gradient of a frozen parameter
	SplitDiffers                 // gives other numbers, or fails, with I and W apart
	GradientDiffers              // computes gradients that differ from those of its outputs and losses
	AbortMatters                 // a cancelled step changes the next one, or leaves something behind
	Allocates                    // allocates Go memory in every microbatch (L11)

	numCodes = int(Allocates) + 1
)

// String returns a name of one to three words.
func (c Code) String() string {
	if int(c) < numCodes {
		return texts[c].name
	}
	return "code(?)"
}

// texts has the name of each code, and a remedy.
var texts = [numCodes]struct{ name, advice string }{
	BadConfig:        {"bad config", "correct the Config"},
	BadSpec:          {"bad spec", "correct the Spec"},
	SpecChanges:      {"spec changes", "make Spec and Params return the same every time"},
	Fails:            {"fails", "find out why; every error comes with its action"},
	Panics:           {"panics", "return an error if something is wrong"},
	Undeclared:       {"undeclared", "declare it in the Spec or in Params"},
	ReadsLate:        {"reads late", "add the action to Read.At, or Save the part"},
	Misplaced:        {"misplaced", "save in Forward, contribute in B or W, record losses in Forward"},
	SavesTwice:       {"saves twice", "give each tensor a slot of its own (Decl.Slot)"},
	TakesUnsaved:     {"takes unsaved", "save in every Forward the tensors that Backward takes, whatever the pass"},
	TakesTwice:       {"takes twice", "take once and use the handle until the call returns"},
	KeepsView:        {"keeps view", "use the Microbatch within the call only"},
	UsesEnded:        {"uses ended", "Save the tensors that a later call needs, with Retain for arguments"},
	UnfilledOutput:   {"unfilled output", "put a tensor into every element of out"},
	GradInMissing:    {"gradIn missing", "put a tensor into every element of gradIn that has a gradient"},
	GradInUnwanted:   {"gradIn unwanted", "omit the input gradient if gradIn is nil, and for ports with NoGrad"},
	ReturnsBorrowed:  {"returns borrowed", "return Retain of it"},
	SavesBorrowed:    {"saves borrowed", "save Retain of it"},
	ReleasesBorrowed: {"releases borrowed", "arguments are valid during the call, and tensors from Take during the action; release only tensors that the stage made or retained"},
	KeepsInput:       {"keeps input", "Save it if Backward needs it, and release every Retain"},
	KeepsOutput:      {"keeps output", "Retain it only to Save it"},
	KeepsGradient:    {"keeps gradient", "release every Retain within the call"},
	KeepsPart:        {"keeps part", "read the part again when it is needed, and declare the read"},
	KeepsSaved:       {"keeps saved", "Save takes the reference over, so keep no other one"},
	Unreleased:       {"unreleased", "release within the call every tensor that is not returned or saved"},
	Reachable:        {"reachable", "keep no tensor in a field, a closure or a global variable"},
	MutatesInput:     {"mutates input", "write to a tensor of the stage's own"},
	MutatesGradOut:   {"mutates gradOut", "write to a tensor of the stage's own"},
	MutatesPart:      {"mutates part", "write to a tensor of the stage's own"},
	ContributesTwice: {"contributes twice", "call Grad once for a parameter, and write the sum"},
	ContributesNever: {"contributes never", "contribute in every microbatch, or declare the parameter Sometimes or Frozen"},
	LacksSeed:        {"lacks seed", "call LossSeed for every loss that trains, and declare the others with Metric"},
	NotRepeatable:    {"not repeatable", "key random draws by Seed, Step and Global, do not depend on the clock or on the order of a map, and let Config.New give the same weights"},
	OrderMatters:     {"order matters", "keep nothing of a microbatch in fields, and key random draws by Global"},
	IgnoresFirst:     {"ignores first", "overwrite the whole gradient if Grad returns First"},
	IgnoresAdd:       {"ignores add", "add to the gradient if Grad returns Add"},
	RecomputeDiffers: {"recompute differs", "repeat in a Recompute pass exactly the operations of Train, with the same draws"},
	EvalDiffers:      {"eval differs", "let Eval and Train share nothing that changes, or set Config.EvalDiffers if the outputs are meant to differ"},
	FrozenDiffers:    {"frozen differs", "if Frozen is true, save nothing for W, and write nothing if Grad returns Skip"},
	WritesFrozen:     {"writes frozen", "access gradients only through Grad"},
	SplitDiffers:     {"split differs", "let BackwardInput and BackwardWeight together do what Backward does, in the same order"},
	GradientDiffers:  {"gradient differs", "let the backward compute the derivative of what the forward computes, every loss times its own seed, or set Config.GradientDiffers if another one is meant"},
	AbortMatters:     {"abort matters", "keep nothing in fields between calls"},
	Allocates:        {"allocates", "allocate scratch once, in the stage"},
}

// Fault is a fault of a stage.
type Fault struct {
	Code Code
	Text string // one sentence: the fault, its location, and its remedy
}

// String returns the code and the text.
func (f Fault) String() string { return fmt.Sprintf("%s: %s", f.Code, f.Text) }
