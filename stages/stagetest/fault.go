package stagetest

import "fmt"

// Code is the kind of a fault. Codes are comparable; the zero Code is none.
type Code struct{ name, advice string }

// String returns a name of one to three words.
func (c Code) String() string { return c.name }

// The codes, each with its remedy.
var (
	// The configuration of the suite is wrong.
	BadConfig = Code{"bad config", "correct the Config"}
	// The declaration of the stage is wrong.
	BadSpec = Code{"bad spec", "correct the Spec"}
	// Spec or Params change between calls.
	SpecChanges = Code{"spec changes", "make Spec and Params return the same every time"}
	// The stage itself returns an error.
	Fails = Code{"fails", "find out why; every error comes with its action"}
	// The stage panics.
	Panics = Code{"panics", "return an error if something is wrong"}
	// The stage accesses a slot, part, loss or parameter that it did not declare.
	Undeclared = Code{"undeclared", "declare it in the Spec or in Params"}
	// The stage reads a part, or a copy of a weight, after the last action for which it declared
	// the read.
	ReadsLate = Code{"reads late", "add the action to Read.At, or Save the part; declare a WeightCopy for each direction"}
	// The stage makes a call that this kind of action does not allow, such as a contribution in a
	// forward.
	Misplaced = Code{"misplaced", "save in Forward, contribute in B or W, record losses in Forward"}
	// The stage saves in a slot that is in use.
	SavesTwice = Code{"saves twice", "give each tensor a slot of its own (Decl.Slot)"}
	// The stage takes from a slot in which nothing was saved.
	TakesUnsaved = Code{"takes unsaved", "save in every Forward the tensors that Backward takes, whatever the pass"}
	// The stage takes a slot again.
	TakesTwice = Code{"takes twice", "take once and use the handle until the call returns"}
	// The stage uses a microbatch view after its call.
	KeepsView = Code{"keeps view", "use the Microbatch within the call only"}
	// The stage uses or passes on a tensor that was released.
	UsesEnded = Code{"uses ended", "Save the tensors that a later call needs, with Retain for arguments"}
	// The stage does not fill an output.
	UnfilledOutput = Code{"unfilled output", "put a tensor into every element of out"}
	// The stage does not fill the gradient of an input although it is needed.
	GradInMissing = Code{"gradIn missing", "put a tensor into every element of gradIn that has a gradient"}
	// The stage needs a gradIn, or fills one, although none is needed.
	GradInUnwanted = Code{"gradIn unwanted", "omit the input gradient if gradIn is nil, and for ports with NoGrad"}
	// The stage returns an argument without Retain.
	ReturnsBorrowed = Code{"returns borrowed", "return Retain of it"}
	// The stage saves an argument without Retain.
	SavesBorrowed = Code{"saves borrowed", "save Retain of it"}
	// The stage releases an argument, or a tensor that it has taken.
	ReleasesBorrowed = Code{"releases borrowed", "arguments are valid during the call, and tensors from Take during the action; release only tensors that the stage made or retained"}
	// The stage keeps a reference to an input.
	KeepsInput = Code{"keeps input", "Save it if Backward needs it, and release every Retain"}
	// The stage keeps a reference to its output.
	KeepsOutput = Code{"keeps output", "Retain it only to Save it"}
	// The stage keeps a reference to a gradOut or a gradIn.
	KeepsGradient = Code{"keeps gradient", "release every Retain within the call"}
	// The stage keeps a reference to an entry part.
	KeepsPart = Code{"keeps part", "read the part again when it is needed, and declare the read"}
	// The stage keeps a reference to a saved tensor (L2).
	KeepsSaved = Code{"keeps saved", "Save takes the reference over, so keep no other one"}
	// The stage does not release its own tensors.
	Unreleased = Code{"unreleased", "release within the call every tensor that is not returned or saved"}
	// The stage keeps a tensor reachable without a reference to it.
	Reachable = Code{"reachable", "keep no tensor in a field, a closure or a global variable"}
	// The stage changes an input.
	MutatesInput = Code{"mutates input", "write to a new tensor"}
	// The stage changes the gradient of an output.
	MutatesGradOut = Code{"mutates gradOut", "write to a new tensor"}
	// The stage changes an entry part.
	MutatesPart = Code{"mutates part", "write to a new tensor"}
	// The stage contributes to a gradient twice in a microbatch.
	ContributesTwice = Code{"contributes twice", "call Grad once for a parameter, and write the sum"}
	// The stage contributes to a gradient in fewer microbatches than declared.
	ContributesNever = Code{"contributes never", "contribute in every microbatch, or declare the parameter Sometimes or Frozen"}
	// The stage trains a loss without asking for its seed.
	LacksSeed = Code{"lacks seed", "call LossSeed for every loss that trains, and declare the others with Metric"}
	// The stage computes different numbers if the same step is repeated.
	NotRepeatable = Code{"not repeatable", "key random draws by Seed, Step and Global, do not depend on the clock or on the order of a map, and let Config.New give the same weights"}
	// The stage computes different numbers, or fails, in a different order of microbatches.
	OrderMatters = Code{"order matters", "keep nothing of a microbatch in fields, and key random draws by Global"}
	// The stage adds to a gradient that it must overwrite.
	IgnoresFirst = Code{"ignores first", "overwrite the whole gradient if Grad returns First"}
	// The stage overwrites a gradient that it must add to.
	IgnoresAdd = Code{"ignores add", "add to the gradient if Grad returns Add"}
	// The stage computes different numbers, or fails, under Recompute (L13).
	RecomputeDiffers = Code{"recompute differs", "repeat in a Recompute pass exactly the operations of Train, with the same draws"}
	// The stage computes different numbers in Eval, or Eval changes the numbers of Train.
	EvalDiffers = Code{"eval differs", "let Eval and Train share nothing that changes, or set Config.EvalDiffers if the outputs differ intentionally"}
	// The stage fails, or computes a different gradIn, if its parameters are frozen.
	FrozenDiffers = Code{"frozen differs", "if Frozen is true, save nothing for W, and write nothing if Grad returns Skip"}
	// The stage writes the gradient of a frozen parameter.
	WritesFrozen = Code{"writes frozen", "access gradients only through Grad"}
	// The stage computes different numbers, or fails, if its backward is split into I and W.
	SplitDiffers = Code{"split differs", "let BackwardInput and BackwardWeight together do what Backward does, in the same order"}
	// The stage computes gradients that are not the derivatives of its outputs and losses.
	GradientDiffers = Code{"gradient differs", "let the backward compute the derivative of the forward, every loss times its own seed, or set Config.GradientDiffers if another gradient is intended"}
	// A canceled step changes the next one, or leaves something behind.
	AbortMatters = Code{"abort matters", "keep nothing in fields between calls"}
	// The stage allocates Go memory in every microbatch (L11).
	Allocates = Code{"allocates", "allocate scratch once, in the stage"}
)

// Fault is a fault of a stage.
type Fault struct {
	Code Code
	Text string // one sentence: the fault, its location, and its remedy
}

// String returns the code and the text.
func (f Fault) String() string { return fmt.Sprintf("%s: %s", f.Code, f.Text) }
