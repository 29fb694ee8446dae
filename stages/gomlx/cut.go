package gomlx

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/support/exceptions"
)

// ErrRefused is returned for a model that cannot be cut. The error names the node or the
// variable, and a remedy.
var ErrRefused = errors.New("gomlx: the model cannot be cut")

const random = "/" + model.RNGStateVariableName

// forward is the graph of a stage's function for one set of input shapes.
type forward struct {
	graph     *graph.Graph
	inputs    []*graph.Node
	outputs   []*graph.Node
	losses    [][2]*graph.Node // sum and weight of each
	variables []*model.Variable
}

// trace builds the graph of a stage. It is called twice, for the joint graph and for the graph
// that is executed, and gives nodes the same ids.
func (s *stage) trace(in []shapes.Shape, training bool) (f *forward, err error) {
	g := graph.NewGraph(s.model.backend, s.def.Name)
	takes := fmt.Sprintf("its graph function gets %d inputs, %d from the previous stage and the parts of its Reads, %q; if it uses another one, name it in Stage.Reads", len(s.inputs)+len(s.def.Reads), len(s.inputs), s.def.Reads)
	caught := exceptions.TryCatch[error](func() {
		store := s.model.Store
		model.SetStore(g, store)
		store.SetTraining(g, training)
		f = &forward{graph: g}
		for i, shape := range in {
			f.inputs = append(f.inputs, graph.Parameter(g, fmt.Sprint("#in", i), shape))
		}
		f.outputs = s.def.Graph(store.RootScope(), f.inputs[:len(s.inputs)+len(s.def.Reads)])
		if s.last {
			labels := f.inputs[len(s.inputs)+len(s.def.Reads):]
			for i, l := range s.model.losses {
				takes = fmt.Sprintf("loss %q gets %d labels, %q, and %d predictions; if it uses another one, name it in Config.Labels, or return it from the last stage", l.name, len(labels), s.model.Labels, len(f.outputs))
				n := l.fn(labels, f.outputs)
				sum, weight := perExample(n, labels, f.outputs)
				if i == 0 && !n.DType().IsFloat() {
					err = s.refused("the loss %s is %s and has no gradient: return floats, or make it one of Config.Metrics", n, n.DType())
					return
				}
				f.losses = append(f.losses, [2]*graph.Node{sum, weight})
			}
			f.outputs = nil
		}
		err = s.refuse(f)
	})
	if beyond, ok := errors.AsType[runtime.Error](caught); ok { // probably an index out of range
		return nil, s.refused("%s: %w", takes, beyond)
	}
	return f, errors.Join(err, s.blame(caught))
}

func (s *stage) blame(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("gomlx: stage %q: %w", s.def.Name, err)
}

func (s *stage) refused(format string, args ...any) error {
	return fmt.Errorf("%w: stage %q: "+format, append([]any{ErrRefused, s.def.Name}, args...)...)
}

// refuse returns an error for variables and operations that would train differently from the intention
// of the model's author, and collects the variables of the stage.
func (s *stage) refuse(f *forward) error {
	var changed []string
	for v := range s.model.Store.IterVariables() {
		if !v.InUseByGraph(f.graph) {
			continue
		}
		if v.Path() == random {
			v.SetTrainable(false) // a checkpoint does not store it
		} else if v.ChangedInGraph(f.graph) {
			changed = append(changed, v.Path())
		}
		f.variables = append(f.variables, v)
		if v.Trainable && v.DType() != dtypes.Float32 {
			return s.refused("variable %s is trained in %s: gradients are accumulated in float32, store it in that", v.Path(), v.DType())
		}
	}
	if changed != nil {
		return s.refused("its forward changes %s, and microbatches run in the order of the plan: use a layer that keeps no averages, such as norm.LayerNorm, or fix them in training", strings.Join(changed, ", "))
	}
	if n := train.GetRegularizationLoss(f.graph); n != nil {
		return s.refused("it adds the regularization loss %s (train.AddRegularizationLoss, or train.AddLoss), which every microbatch would add again: use the weight decay of the optimizer, or for a loss of activations a term of Config.Loss", n)
	}
	if n := train.GetMainLoss(f.graph); n != nil {
		return s.refused("it adds the auxiliary loss %s (train.AddMainLoss), which only train.Trainer trains: return its operands from the last stage, and make it a term of Config.Loss", n)
	}
	for p := range s.model.Store.IterGraphParams(f.graph) {
		if p.Key == train.TrainerPerStepUpdateGraphFnParamKey {
			return s.refused("it registers an update of every step in scope %s (train.AddPerStepUpdateGraphFn), which only train.Trainer runs: do it after Update", p.Scope)
		}
	}
	for i, n := range f.outputs {
		if n.DType() != dtypes.Float32 {
			return s.refused("output %d, %s, is %s and has no gradient: let the stage that needs it read it as a part of the entry", i, n, n.DType())
		}
	}
	if len(f.outputs) != len(s.outputs) && !s.last {
		return s.refused("it returns %d tensors: set Stage.Outputs, which is %d", len(f.outputs), len(s.outputs))
	}
	return nil
}

// perExample converts a loss of GoMLX to a sum and a weight. Such a loss is a mean over all
// elements of the labels or, if there is a mask, over those for which it is set. A loss that
// returns a value for each example is summed.
func perExample(l *graph.Node, labels, predictions []*graph.Node) (sum, weight *graph.Node) {
	l = graph.ConvertDType(l, dtypes.Float32)
	count := predictions[0].Shape().Size()
	if len(labels) > 0 {
		count = labels[0].Shape().Size()
	}
	if !l.IsScalar() {
		count = l.Shape().Size()
	}
	weight = graph.Scalar(l.Graph(), dtypes.Float32, float64(count))
	for _, extra := range labels[min(1, len(labels)):] {
		if extra.DType() == dtypes.Bool {
			weight = graph.ReduceAllSum(graph.ConvertDType(extra, dtypes.Float32))
			if !l.IsScalar() { // an element of the mask applies to several losses
				weight = graph.MulScalar(weight, float64(l.Shape().Size())/float64(extra.Shape().Size()))
			}
		}
	}
	if l.IsScalar() {
		return graph.Mul(l, weight), weight
	}
	return graph.ReduceAllSum(l), weight
}

// joint is a stage's forward with its gradients. It is not executed.
type joint struct {
	*forward
	stage   *stage
	first   graph.NodeId // the first node after the forward's
	seed    *graph.Node
	gradOut []*graph.Node
	gradIn  []*graph.Node // of the inputs from the previous stage
	grads   []*graph.Node // of the trained variables
}

// differentiate builds the joint graph.
func (s *stage) differentiate(in []shapes.Shape) (*joint, error) {
	f, err := s.trace(in, true)
	if err != nil {
		return nil, err
	}
	j := &joint{forward: f, stage: s}
	err = exceptions.TryCatch[error](func() {
		g := f.graph
		j.first = graph.NodeId(len(g.Nodes()))
		var root *graph.Node
		start := func(n *graph.Node, name string) *graph.Node { // marks the node at which a gradient starts
			grad := graph.Parameter(g, name, n.Shape())
			n = graph.ReduceAllSum(graph.IdentityWithCustomGradient(n, func(_, _ *graph.Node) *graph.Node { return grad }))
			if root == nil {
				root = n
			} else {
				root = graph.Add(root, n)
			}
			return grad
		}
		for i, n := range f.outputs {
			j.gradOut = append(j.gradOut, start(n, fmt.Sprint("#out", i)))
		}
		if s.last {
			j.seed = start(f.losses[0][0], "#seed")
		}
		to := slices.Clone(f.inputs[:len(s.inputs)])
		for _, v := range f.variables {
			if v.Trainable {
				to = append(to, f.graph.GetParameterByName(v.Path()))
			}
		}
		if len(to) > 0 {
			to = graph.Gradient(root, to...)
		}
		j.gradIn, j.grads = to[:len(s.inputs)], to[len(s.inputs):]
	})
	return j, s.blame(err)
}

// cheap reports whether a node only copies or fills: a backward recomputes it instead of keeping
// it.
func cheap(n *graph.Node) bool {
	switch n.Type() {
	case graph.NodeTypeBroadcastInDim, graph.NodeTypeReshape, graph.NodeTypeIdentity, graph.NodeTypeIota:
		return true
	}
	return n.Type() == graph.NodeTypeConstant && n.ConstantValue() != nil
}

// given reports whether a node is passed to the backward: it is a parameter of the joint graph, or
// the forward keeps it.
func (j *joint) given(n *graph.Node) bool {
	if n.Type() == graph.NodeTypeParameter {
		return true
	}
	return n.Id() < j.first && n.NumOutputs() == 1 && !cheap(n) && !j.stage.model.recompute(n)
}

// reach traverses the graph from targets towards the inputs. It returns the nodes at which it
// stopped and the other nodes that it visited, both in the order of the graph.
func reach(targets []*graph.Node, stop func(*graph.Node) bool) (stopped, passed []*graph.Node) {
	seen := map[*graph.Node]bool{}
	var visit func(*graph.Node)
	visit = func(n *graph.Node) {
		if seen[n] {
			return
		}
		seen[n] = true
		if stop(n) {
			stopped = append(stopped, n)
			return
		}
		passed = append(passed, n)
		for _, in := range n.Inputs() {
			visit(in)
		}
	}
	for _, n := range targets {
		visit(n)
	}
	byId := func(a, b *graph.Node) int { return int(a.Id()) - int(b.Id()) }
	slices.SortFunc(stopped, byId)
	slices.SortFunc(passed, byId)
	return stopped, passed
}

// program is an executable with its inputs: nodes of the joint graph, followed by accumulators.
type program struct {
	*executable
	feeds  []*graph.Node
	inside int64
}

// cut compiles, unless *to exists, a separate program that computes targets from the nodes at
// which stop is true, and adds grads to accumulators, which are donated.
func (j *joint) cut(to **program, name string, targets, grads []*graph.Node, stop func(*graph.Node) bool) error {
	if *to != nil {
		return nil
	}
	p := &program{}
	return j.stage.blame(exceptions.TryCatch[error](func() {
		g := graph.NewGraph(j.stage.model.backend, j.stage.def.Name+" "+name)
		feeds, passed := reach(append(slices.Clone(targets), grads...), stop)
		p.feeds = feeds
		made := map[*graph.Node]*graph.Node{}
		for i, n := range feeds {
			made[n] = graph.Parameter(g, fmt.Sprint("#", i), n.Shape())
		}
		for _, n := range passed {
			made[n] = clone(g, n, made)
		}
		var out []*graph.Node
		for _, n := range targets {
			out = append(out, made[n])
		}
		for i, n := range grads {
			out = append(out, graph.Add(graph.Parameter(g, fmt.Sprint("#acc", i), n.Shape()), made[n]))
		}
		if out != nil {
			p.executable, p.inside = j.stage.model.compile(g, out)
		}
		*to = p
	}))
}

// clone creates a copy of a node in another graph.
func clone(g *graph.Graph, n *graph.Node, made map[*graph.Node]*graph.Node) *graph.Node {
	switch n.Type() {
	case graph.NodeTypeConstant:
		return graph.ConstTensor(g, n.ConstantValue())
	case graph.NodeTypeIota: // without an input, CloneWithInputs does not know the graph
		text := n.String()
		axis, at := 0, strings.LastIndex(text, "iotaAxis=")
		if _, err := fmt.Sscanf(text[max(at, 0):], "iotaAxis=%d", &axis); err != nil {
			panic(err)
		}
		return graph.Iota(g, n.Shape(), axis)
	}
	inputs := make([]*graph.Node, len(n.Inputs()))
	for i, in := range n.Inputs() {
		inputs[i] = made[in]
	}
	return n.CloneWithInputs(inputs...)
}

// movable returns an error for nodes that cannot be created again in another graph.
func (s *stage) movable(nodes []*graph.Node) error {
	for _, n := range nodes {
		switch {
		case n.Type() == graph.NodeTypeConstant && n.ConstantValue() == nil:
			return s.refused("%s: a constant of %d elements in a gradient, whose value GoMLX does not keep: make it a variable that is not trained", n, n.Shape().Size())
		case n.Type() >= graph.NodeTypeCall: // they contain functions, which belong to one graph
			return s.refused("%s: %s in a gradient cannot be moved to another graph: write it without %[2]s, or put graph.StopGradient before it", n, names[n.Type()])
		}
	}
	return nil
}

var names = map[graph.NodeType]string{graph.NodeTypeCall: "Call", graph.NodeTypeSort: "Sort", graph.NodeTypeWhile: "While", graph.NodeTypeIf: "If"}

// compile compiles a graph. inside is the maximum memory, in bytes, of its nodes in the order of
// their creation, in addition to inputs and outputs.
func (m *Model) compile(g *graph.Graph, outputs []*graph.Node) (e *executable, inside int64) {
	last := map[*graph.Node]int{}
	nodes := g.Nodes()
	for i, n := range nodes {
		for _, in := range n.Inputs() {
			last[in] = i
		}
	}
	ends := make([]int64, len(nodes)+1)
	var live int64
	for i, n := range nodes {
		if i, used := last[n]; used && n.NumOutputs() == 1 && n.Type() != graph.NodeTypeParameter && !slices.Contains(outputs, n) {
			live += n.Shape().ByteSize()
			ends[i] += n.Shape().ByteSize()
		}
		inside = max(inside, live)
		live -= ends[i]
	}
	if err := g.Compile(outputs...); err != nil {
		panic(err)
	}
	m.compiled.Add(1)
	return g.Executable().(*executable), inside
}
